"""The line between public and private modules, and the size of the client."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ROOT / "src" / "tidemill" / "client"
PUBLIC = ("tidemill.errors", "tidemill.testing", "tidemill.rest", "tidemill.dashboard", "tidemill.contrib")
MOST_FILES = 51

FOR_STORE_AUTHORS = {"docs/stores.md", "docs/states.md", "examples/first_look.py"}
"""Pages about the store contract and the transition table, which use the types behind the public names."""

_IMPORT = re.compile(r"^\s*(?:from (tidemill[\w.]*) import ([^\n#]+)|import (tidemill[\w.]*))", re.MULTILINE)
_REACHES = re.compile(r"(?<!\bself)\._client\b")


def private_imports(text: str) -> list[str]:
    """The modules and names in these imports that are not public."""
    found = []
    for module, names, whole in _IMPORT.findall(text):
        name = module or whole
        if name == "tidemill":
            wanted = re.findall(r"\w+", names.split(" as ")[0]) if names else []
            found += [f"tidemill.{each}" for each in wanted if not _is_public(each)]
        elif not name.startswith(PUBLIC):
            found.append(name)
    return found


def _is_public(name: str) -> bool:
    return name in tidemill.__all__ or name == "__version__" or f"tidemill.{name}" in PUBLIC


def pages() -> Iterator[Path]:
    """The pages and programs that users copy from."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from sorted((ROOT / "examples").rglob("*.py"))


def snippets(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return text
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def test_docs_and_examples_import_public_names_only() -> None:
    found = {
        where: wrong
        for path in pages()
        if (where := path.relative_to(ROOT).as_posix()) not in FOR_STORE_AUTHORS
        and "decisions" not in path.parts
        and (wrong := private_imports(snippets(path)))
    }
    assert found == {}


def test_only_the_app_and_the_client_reach_for_the_client_of_an_app() -> None:
    allowed = {
        ROOT / "src" / "tidemill" / "app.py",
        Path(__file__).resolve(),
        Path(__file__).with_name("test_store_calls.py").resolve(),
    }
    found = {
        path.relative_to(ROOT).as_posix(): lines
        for part in ("src", "tests", "bench", "examples")
        for path in sorted((ROOT / part).rglob("*.py"))
        if path not in allowed
        and not path.is_relative_to(CLIENT)
        and (
            lines := [line.strip() for line in path.read_text("utf-8").splitlines() if _REACHES.search(line)]
        )
    }
    assert found == {}


def test_the_client_has_few_modules() -> None:
    # The one-line docstring of a package is not counted.
    modules = [path for path in CLIENT.rglob("*.py") if len(path.read_text("utf-8").splitlines()) > 1]
    assert len(modules) <= MOST_FILES


def test_jobs_are_stored_by_the_routes_only() -> None:
    """No other module of the client writes new jobs, so hooks, limits, audit and events are applied in one place."""
    allowed = {"enqueue/routes.py", "enqueue/writes.py", "own_connection/sansio.py"}
    found = [
        path.relative_to(CLIENT).as_posix()
        for path in sorted(CLIENT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "enqueue"
        and "store" in ast.unparse(node.func.value).lower()
    ]
    assert set(found) <= allowed


def test_names_that_few_programs_need_are_imported_on_first_use() -> None:
    code = (
        "import sys, tidemill\n"
        "assert 'tidemill.holidays' not in sys.modules\n"
        "assert 'country_calendar' in dir(tidemill)\n"
        "from tidemill import country_calendar\n"
        "assert country_calendar.__module__ == 'tidemill.holidays'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(tidemill, "nothing")  # noqa: B009


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("from tidemill import App, Cron\n", []),
        ("from tidemill.errors import JobFailed\nimport tidemill\n", []),
        ("from tidemill.domain.job import Execution\n", ["tidemill.domain.job"]),
        ("from tidemill import App, Hidden\n", ["tidemill.Hidden"]),
        ("import tidemill.stores.base\n", ["tidemill.stores.base"]),
    ],
)
def test_private_imports_are_found(text: str, wrong: list[str]) -> None:
    assert private_imports(text) == wrong
