"""Conditions on the results of other nodes, as data that a worker evaluates.

A condition is a JSON list: an operator and its operands. An operand is a value, or a reference as ``references`` writes it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection
from typing import Any, NoReturn
from uuid import UUID

from tidemill.errors import UsageError

Read = Callable[[Any], Any]
"""Returns the value of an operand: that of a reference, or the operand itself."""

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, choices: value in choices,
}


class Condition:
    """A comparison of results, or a combination of comparisons with ``&``, ``|`` and ``~``."""

    __slots__ = ("needs", "test", "text")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, test: list[Any], text: str, needs: Collection[UUID]) -> None:
        self.test = test  #: JSON
        self.text = text  #: for people
        self.needs = frozenset(needs)  #: the nodes whose results it reads

    def __and__(self, other: object) -> Condition:
        return self._combined("and", other)

    def __or__(self, other: object) -> Condition:
        return self._combined("or", other)

    def __invert__(self) -> Condition:
        return Condition(["not", self.test], f"not ({self.text})", self.needs)

    def _combined(self, word: str, other: object) -> Condition:
        second = as_condition(other)
        return Condition(
            [word, self.test, second.test], f"({self.text}) {word} ({second.text})", self.needs | second.needs
        )

    def __bool__(self) -> NoReturn:
        raise UsageError(
            f"{self.text} is not known before the flow runs; combine conditions with &, | and ~ instead of"
            " and, or and not, and give the condition to .when(…)"
        )

    def __repr__(self) -> str:
        return f"<condition {self.text}>"


def as_condition(given: object) -> Condition:
    """A condition, or the condition that the result behind a reference is true."""
    if isinstance(given, Condition):
        return given
    make: Callable[[], Condition] | None = getattr(type(given), "__tidemill_condition__", None)
    if make is None:
        raise UsageError(
            f"{given!r} is not a condition; compare the result of a node: .when(total.result > 0)"
        )
    return make(given)  # type: ignore[call-arg]


def evaluate(test: Any, read: Read) -> bool:
    """Whether a condition holds. Values that cannot be compared, such as a missing result and a number, do not meet it.

    >>> evaluate(["and", [">", 3, 1], ["not", ["==", "a", "b"]]], lambda operand: operand)
    True
    """
    word, *operands = test
    if word == "and":
        return all(evaluate(operand, read) for operand in operands)
    if word == "or":
        return any(evaluate(operand, read) for operand in operands)
    if word == "not":
        return not evaluate(operands[0], read)
    if word == "true":
        return bool(read(operands[0]))
    compare = _COMPARISONS.get(word)
    if compare is None:
        raise UsageError(f"unknown operator {word!r} in a condition; a newer release may have written it")
    try:
        return bool(compare(read(operands[0]), read(operands[1])))
    except TypeError:
        return False
