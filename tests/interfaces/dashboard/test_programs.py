"""What the browser's tests need is found, or said to be missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interfaces.dashboard import programs

from tidemill.testing.processes import ServiceMissing


def test_a_browser_that_is_not_there_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TIDEMILL_TEST_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceMissing, match="install your system's chromium"):
        programs.find_chromium()


def test_a_browser_that_is_named_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "my-browser"
    program.write_text("#!/bin/sh\necho Chromium 140.0.7339.80 built on Sunday\n")
    program.chmod(0o755)
    monkeypatch.setenv("TIDEMILL_TEST_CHROMIUM", str(program))
    assert programs.find_chromium() == program
    assert programs.chromium_version(program) == "140.0.7339.80"


def test_a_judge_that_is_not_the_one_we_know_is_not_let_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    (tmp_path / f"axe-core-{programs.AXE}").mkdir()
    (tmp_path / f"axe-core-{programs.AXE}" / "axe.min.js").write_text("steal()")
    with pytest.raises(ServiceMissing, match="remove the folder"):
        programs.axe_script.__wrapped__()


def test_a_judge_that_cannot_be_fetched_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    npm = tmp_path / "npm"
    npm.write_text("#!/bin/sh\necho 'npm error network' >&2\nexit 1\n")
    npm.chmod(0o755)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr(programs, "_npm", lambda: [str(npm)])
    with pytest.raises(ServiceMissing, match="npm error network"):
        programs.axe_script.__wrapped__()
    assert [path.name for path in tmp_path.iterdir()] == ["npm"]
