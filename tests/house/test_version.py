"""The version of the package has one source."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

from tools.environment import package_version

import tidemill

ROOT = Path(__file__).resolve().parents[2]


def test_the_installed_version_is_that_of_the_source() -> None:
    assert importlib.metadata.version("tidemill") == tidemill.__version__ == package_version()


def test_the_project_file_has_no_version_of_its_own() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["hatch"]["version"] == {"path": "src/tidemill/__init__.py"}
