"""Imports of the packages of every extra in pyproject.toml."""

from __future__ import annotations

import ast
import gc
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMPORTED_AS = {
    "nats_py": "nats",
    "httptools": "uvicorn.protocols.http.httptools_impl",
    "opentelemetry_api": "opentelemetry.trace",
    "opentelemetry_instrumentation": "opentelemetry.instrumentation",
}
"""Packages whose modules have another name, or that a third-party module imports for us."""

FRAMEWORKS = {"django", "fastapi", "flask", "litestar"}
"""Extras of web frameworks, which every project chooses for itself."""

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
    # Python 3.11 cannot parse while a collection warns about objects that earlier tests left open.
    gc.collect()
    gc.disable()
    try:
        return {name for file in files for name in imports(file.read_text(encoding="utf-8"))}
    finally:
        gc.enable()


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - {"all"}))
def test_the_packages_of_an_extra_are_imported(extra: str, imported: set[str]) -> None:
    for requirement in EXTRAS[extra]:
        package = re.split(r"[\[<>=;~! ]", requirement)[0].replace("-", "_")
        wanted = IMPORTED_AS.get(package, package)
        assert any(name == wanted or name.startswith(f"{wanted}.") for name in imported), requirement


def test_all_names_every_other_extra_except_the_web_frameworks() -> None:
    (whole,) = EXTRAS["all"]
    named = set(whole.partition("[")[2].rstrip("]").split(","))
    assert named == set(EXTRAS) - {"all"} - FRAMEWORKS


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
def test_a_web_framework_has_a_module_in_contrib(name: str) -> None:
    contrib = ROOT / "src" / "tidemill" / "contrib"
    assert (contrib / f"{name}.py").is_file() or (contrib / name / "__init__.py").is_file()


def test_importing_the_package_imports_no_web_framework() -> None:
    code = (
        f"import sys, tidemill; print(sorted({{*sys.modules}} & {{*{sorted(FRAMEWORKS | {'starlette'})!r}}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
