"""Public names of the package, and the error tree in ``errors``."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import subprocess
import sys
from collections.abc import Iterable
from types import ModuleType, SimpleNamespace

import pytest

import tidemill
from tidemill import errors


def disorder(names: Iterable[str]) -> list[str]:
    """The names that are duplicates or out of order: constants first, then the others, each sorted."""
    places = [(not name.isupper(), name) for name in names]
    return [later[1] for earlier, later in itertools.pairwise(places) if later <= earlier]


def missing(module: object, names: Iterable[str]) -> list[str]:
    """The names that the module does not have."""
    return [name for name in names if not hasattr(module, name)]


def error_classes(module: ModuleType) -> list[str]:
    """The exceptions that a module defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == module.__name__
    ]


def imports_for_type_checkers(source: str) -> dict[str, list[str]]:
    """The names that a module imports from each module under ``if TYPE_CHECKING``."""
    block = next(
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {
        statement.module or "": [name.name for name in statement.names]
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
    }


def undrawn(docstring: str, names: Iterable[str]) -> list[str]:
    """The names that a docstring does not mention."""
    words = set(re.findall(r"\w+", docstring))
    return [name for name in names if name not in words]


def test_the_public_names_are_sorted() -> None:
    assert disorder(tidemill.__all__) == []


def test_every_public_name_exists() -> None:
    assert missing(tidemill, tidemill.__all__) == []


def test_type_checkers_and_programs_see_the_same_public_names() -> None:
    declared = imports_for_type_checkers(inspect.getsource(tidemill))
    assert {module: names.split() for module, names in tidemill._MODULES.items()} == declared


def test_importing_the_package_loads_none_of_its_modules() -> None:
    code = "import sys, tidemill; print([name for name in sys.modules if name.startswith('tidemill.')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_a_supervisor_loads_neither_the_code_of_tasks_nor_pydantic() -> None:
    code = "import sys, tidemill.engine.supervisor.supervisor; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    unwanted = {"pydantic", "pydantic_core", "tidemill.app", "tidemill.tasks.task", "tidemill.engine.context"}
    assert unwanted.isdisjoint(loaded)


def test_an_app_on_postgresql_does_not_load_the_library_of_sqlite() -> None:
    code = "import sys; from tidemill import App; App('postgresql://here/jobs').close(); print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "psycopg" in loaded
    assert "sqlite3" not in loaded


def test_the_error_tree_in_the_docstring_names_every_error() -> None:
    names = error_classes(errors)
    assert "TidemillError" in names
    assert undrawn(errors.__doc__ or "", names) == []


@pytest.mark.parametrize("names", [["b", "a"], ["a", "a"], ["App", "Job", "Execution"]])
def test_names_out_of_order_are_rejected(names: list[str]) -> None:
    assert disorder(names)


def test_a_missing_public_name_is_rejected() -> None:
    assert missing(SimpleNamespace(here=1), ["gone", "here"]) == ["gone"]


def test_an_error_missing_from_the_tree_is_rejected() -> None:
    assert undrawn("StoreErrors\n└── StoreBusy", ["StoreError", "StoreBusy"]) == ["StoreError"]


def test_only_exceptions_defined_in_the_module_belong_to_its_tree() -> None:
    module = ModuleType("somewhere")
    own = type("Own", (Exception,), {"__module__": "somewhere"})
    vars(module).update(Own=own, Borrowed=ValueError, NoError=int)
    assert error_classes(module) == ["Own"]
