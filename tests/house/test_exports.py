"""Public names of the package, and the error tree in ``errors``."""

from __future__ import annotations

import inspect
import itertools
import re
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


def undrawn(docstring: str, names: Iterable[str]) -> list[str]:
    """The names that a docstring does not mention."""
    words = set(re.findall(r"\w+", docstring))
    return [name for name in names if name not in words]


def test_the_public_names_are_sorted() -> None:
    assert disorder(tidemill.__all__) == []


def test_every_public_name_exists() -> None:
    assert missing(tidemill, tidemill.__all__) == []


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
