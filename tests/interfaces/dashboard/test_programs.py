"""Lookup of the browser and of axe-core."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interfaces.dashboard import programs
from tests.servers.processes import ServiceMissing


def test_a_missing_browser_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TIDEMILL_TEST_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceMissing, match="install your system's chromium"):
        programs.find_chromium()


def test_a_configured_browser_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "my-browser"
    program.write_text("#!/bin/sh\necho Chromium 140.0.7339.80 built on Sunday\n")
    program.chmod(0o755)
    monkeypatch.setenv("TIDEMILL_TEST_CHROMIUM", str(program))
    assert programs.find_chromium() == program
    assert programs.chromium_version(program) == "140.0.7339.80"


def test_an_axe_core_with_another_hash_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    (tmp_path / f"axe-core-{programs.AXE}").mkdir()
    (tmp_path / f"axe-core-{programs.AXE}" / "axe.min.js").write_text("steal()")
    with pytest.raises(ServiceMissing, match="remove the folder"):
        programs.axe_script.__wrapped__()


def test_an_axe_core_that_cannot_be_installed_is_reported_as_missing(
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
