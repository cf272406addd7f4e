"""Imports of the packages of every extra in pyproject.toml."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORTED_AS = {"httptools": "uvicorn.protocols.http.httptools_impl"}
"""Packages that a third-party module imports for us, and that module."""

EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]


def imports(source: str) -> Iterator[str]:
    """The modules that a file imports, including those loaded with ``importlib.import_module``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(word.value) for word in node.args if isinstance(word, ast.Constant))


@pytest.fixture(scope="module")
def imported() -> set[str]:
    files = (ROOT / "src").rglob("*.py")
    return {name for file in files for name in imports(file.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"all"}))
def test_the_packages_of_an_extra_are_imported(extra: str, imported: set[str]) -> None:
    for requirement in EXTRAS[extra]:
        package = re.split(r"[\[<>=;~! ]", requirement)[0].replace("-", "_")
        wanted = IMPORTED_AS.get(package, package)
        assert any(name == wanted or name.startswith(f"{wanted}.") for name in imported), requirement


def test_all_names_every_other_extra() -> None:
    (whole,) = EXTRAS["all"]
    named = set(whole.partition("[")[2].rstrip("]").split(","))
    assert named == set(EXTRAS) - {"all"}
