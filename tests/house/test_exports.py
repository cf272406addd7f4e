"""What the package offers by name is there, in order, and the error tree is drawn whole."""

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
    """The names that stand out of order, or twice: constants first, then the rest, each by the alphabet."""
    places = [(not name.isupper(), name) for name in names]
    return [later[1] for earlier, later in itertools.pairwise(places) if later <= earlier]


def missing(module: object, names: Iterable[str]) -> list[str]:
    """The promised names that the module does not have."""
    return [name for name in names if not hasattr(module, name)]


def error_classes(module: ModuleType) -> list[str]:
    """The names of the exceptions that a module defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == module.__name__
    ]


def undrawn(docstring: str, names: Iterable[str]) -> list[str]:
    """The names that a docstring does not mention as words."""
    words = set(re.findall(r"\w+", docstring))
    return [name for name in names if name not in words]


def test_the_public_names_are_sorted() -> None:
    assert disorder(tidemill.__all__) == []


def test_every_public_name_is_there() -> None:
    assert missing(tidemill, tidemill.__all__) == []


def test_the_error_tree_in_the_docstring_names_every_error() -> None:
    names = error_classes(errors)
    assert "TidemillError" in names
    assert undrawn(errors.__doc__ or "", names) == []


@pytest.mark.parametrize("names", [["b", "a"], ["a", "a"], ["App", "Job", "Execution"]])
def test_names_out_of_order_are_refused(names: list[str]) -> None:
    assert disorder(names)


def test_a_promised_name_that_is_not_there_is_refused() -> None:
    assert missing(SimpleNamespace(here=1), ["gone", "here"]) == ["gone"]


def test_an_error_outside_the_drawn_tree_is_refused() -> None:
    assert undrawn("StoreErrors\n└── StoreBusy", ["StoreError", "StoreBusy"]) == ["StoreError"]


def test_only_exceptions_defined_in_the_module_belong_to_its_tree() -> None:
    module = ModuleType("somewhere")
    own = type("Own", (Exception,), {"__module__": "somewhere"})
    vars(module).update(Own=own, Borrowed=ValueError, NoError=int)
    assert error_classes(module) == ["Own"]
