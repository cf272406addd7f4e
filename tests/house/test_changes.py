"""Changelog fragments in ``changes/``, and their release."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from tools.changes import FOLDER, collected, fragments, mistake, released
from tools.terminal import Stop

OLD = "# Changelog\n\n## [Unreleased]\n\n### Fixed\n\n- Old.\n\n## [0.1.0] - 2026-01-01\n\n- First.\n"


def test_every_fragment_of_the_repository_is_valid() -> None:
    assert [reason for path in fragments() if (reason := mistake(path))] == []
    assert (FOLDER / "README.md").is_file()


def test_fragments_are_grouped_by_kind_in_a_fixed_order(tmp_path: Path) -> None:
    (tmp_path / "b.fixed.md").write_text("A bug is gone.\n")
    (tmp_path / "a.fixed.md").write_text("Another bug is gone.\n")
    (tmp_path / "c.added.md").write_text("A feature is new.\n")
    (tmp_path / "README.md").write_text("# Not a fragment\n")
    assert collected(tmp_path) == (
        "### Added\n\n- A feature is new.\n\n### Fixed\n\n- Another bug is gone.\n- A bug is gone.\n"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bug.md", "A bug is gone.\n"),
        ("bug.mended.md", "A bug is gone.\n"),
        ("Bug.fixed.md", "A bug is gone.\n"),
        ("bug.fixed.md", ""),
        ("bug.fixed.md", "Two\nlines.\n"),
        ("bug.fixed.md", "- A bullet.\n"),
    ],
)
def test_a_wrong_fragment_is_rejected(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(Stop, match="expected"):
        collected(tmp_path)


def test_a_release_moves_the_unreleased_entries_under_its_version() -> None:
    assert released(OLD, "### Added\n\n- New.\n", "0.2.0", date(2026, 2, 3)) == (
        "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-02-03\n\n### Fixed\n\n- Old.\n\n### Added\n\n- New.\n"
        "\n## [0.1.0] - 2026-01-01\n\n- First.\n"
    )


def test_a_version_is_released_once() -> None:
    with pytest.raises(Stop, match=r"already has version 0\.1\.0"):
        released(OLD, "", "0.1.0", date(2026, 2, 3))
