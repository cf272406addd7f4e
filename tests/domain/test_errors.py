"""Tests of the error hierarchy."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import errors
from tidemill.errors import Cancel, PermanentError, Retry, Review, Signal, Snooze, TidemillError

OURS = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == errors.__name__
}
RAISED = sorted((c for c in OURS.values() if issubclass(c, TidemillError)), key=lambda c: c.__name__)


def drawn() -> dict[str, str | None]:
    """Return the tree in the module's docstring: each name with its parent."""
    tree: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ((?:│   |    )*)(├── |└── )?([A-Z]\w+)(?:\s+\(.*)?$", line)
        if match is None:
            continue
        depth = len(match[1]) // 4 + (1 if match[2] else 0)
        path[depth:] = [match[3]]
        tree[match[3]] = path[depth - 1] if depth else None
    return tree


def test_the_docstring_tree_matches_the_classes() -> None:
    tree = drawn()
    assert set(tree) == set(OURS)
    for name, parent in tree.items():
        base = OURS[name].__bases__
        assert base == ((OURS[parent],) if parent else base)
        if parent is None:
            assert base[0] in (Exception, BaseException)


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in RAISED]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_a_code_is_the_name_of_its_class_in_snake_case(kind: type[TidemillError]) -> None:
    assert kind.code == re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()
    assert "code" in vars(kind)


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_the_default_message_is_the_docstring(kind: type[TidemillError]) -> None:
    assert str(kind()) == inspect.cleandoc(kind.__doc__ or "")
    assert kind().message == str(kind())


@given(st.sampled_from(RAISED), st.text(), st.integers())
def test_the_facts_of_an_error_are_its_attributes(
    kind: type[TidemillError], message: str, limit: int
) -> None:
    error = kind(message, limit=limit)
    assert str(error) == error.message == message
    assert error.details == {"limit": limit}
    assert getattr(error, "limit") == limit  # noqa: B009  (mypy does not know the attribute)


@pytest.mark.parametrize("kind", RAISED, ids=lambda kind: kind.__name__)
def test_an_error_can_be_pickled_and_copied(kind: type[TidemillError]) -> None:
    error = kind("it went wrong", limit=3)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is kind
        assert (str(twin), twin.details, vars(twin)["limit"]) == ("it went wrong", {"limit": 3}, 3)


SIGNALS: list[Signal] = [
    Retry(timedelta(1), "later"),
    Snooze(timedelta(1), "busy"),
    Cancel("enough"),
    Review("look", {"a": 1}),
]


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: type(signal).__name__)
def test_a_signal_is_not_an_exception(signal: Signal) -> None:
    assert not isinstance(signal, Exception)


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: type(signal).__name__)
def test_a_pickled_signal_keeps_its_attributes(signal: Signal) -> None:
    assert vars(pickle.loads(pickle.dumps(signal))) == vars(signal)


def test_a_pickled_signal_keeps_its_text() -> None:
    for signal in SIGNALS:
        assert str(pickle.loads(pickle.dumps(signal))) == str(signal)


def test_the_default_text_of_a_signal_is_its_name() -> None:
    assert [str(signal) for signal in (Retry(), Snooze(timedelta(1)), Cancel())] == [
        "retry",
        "snooze",
        "cancel",
    ]


def test_a_permanent_error_is_no_tidemill_error() -> None:
    assert issubclass(PermanentError, Exception)
    assert not issubclass(PermanentError, TidemillError)
