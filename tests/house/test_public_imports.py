"""Documentation and examples import public names only."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.markdown import ROOT, blocks, pages

PUBLIC = (
    "tidemill",
    "tidemill.errors",
    "tidemill.testing",
    "tidemill.rest",
    "tidemill.dashboard",
    "tidemill.contrib",
)
OPEN = ("tidemill.testing", "tidemill.contrib")
"""Public packages whose modules are public too."""

INTERNAL_PAGES = ("docs/decisions/", "docs/architecture.md")
"""Pages about the code itself, which may name its modules."""

_DOTTED = re.compile(r"`(tidemill(?:\.[a-z_]+)+)")


def private_imports(source: str) -> Iterator[str]:
    """The imports of a program that are not public."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_private(alias.name))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "tidemill":
            module = str(node.module)
            if _is_private(module):
                yield module
            else:
                yield from (
                    f"{module}.{alias.name}" for alias in node.names if not _exports(module, alias.name)
                )


def _is_private(module: str) -> bool:
    if module.partition(".")[0] != "tidemill" or module in PUBLIC:
        return False
    return not module.startswith(tuple(f"{package}." for package in OPEN))


def _exports(module: str, name: str) -> bool:
    found = importlib.import_module(module)
    return name in getattr(found, "__all__", [n for n in vars(found) if not n.startswith("_")])


def examples() -> list[Path]:
    return sorted((ROOT / "examples").rglob("*.py"))


def test_the_examples_import_public_names_only() -> None:
    assert examples()
    found = {
        path.name: wrong for path in examples() if (wrong := [*private_imports(path.read_text("utf-8"))])
    }
    assert found == {}


def test_the_documentation_imports_public_names_only() -> None:
    found = {}
    for page in pages():
        name = page.relative_to(ROOT).as_posix()
        for block in blocks(name, page.read_text(encoding="utf-8")):
            if wrong := [*private_imports(block.code)]:
                found[f"{name}:{block.line}"] = wrong
    assert found == {}


def test_the_documentation_names_no_private_module() -> None:
    """Packages may be named, because they stay; modules inside them are renamed."""
    found = {}
    for page in pages():
        name = page.relative_to(ROOT).as_posix()
        dotted = _DOTTED.findall(page.read_text(encoding="utf-8"))
        wrong = [path for path in dotted if path.count(".") > 1 and _is_private(path.rpartition(".")[0])]
        if wrong and not name.startswith(INTERNAL_PAGES):
            found[name] = wrong
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "from tidemill.domain.job import Execution",
        "import tidemill.engine",
        "from tidemill import NotExported",
        "from tidemill.rest.api import create_api",
        "from tidemill import app",
    ],
)
def test_a_private_import_is_detected(source: str) -> None:
    assert [*private_imports(source)]


@pytest.mark.parametrize(
    "source",
    [
        "from tidemill import App, Execution",
        "import tidemill",
        "from tidemill.errors import QueueFull",
        "from tidemill.testing.conformance import StoreConformance",
        "from tidemill.rest import create_api",
        "import tidemillers.engine",
    ],
)
def test_a_public_import_is_accepted(source: str) -> None:
    assert [*private_imports(source)] == []
