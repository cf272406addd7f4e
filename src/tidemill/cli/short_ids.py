"""Abbreviated ids: the only item whose id begins or ends with what the user typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from tidemill.errors import UsageError

T = TypeVar("T")

LEAST = 4
"""Minimum number of characters of an abbreviated id."""


def by_short_id(text: str, items: Iterable[T], id_of: Callable[[T], object], what: str) -> T | None:
    """Return the only item with this id, prefix or suffix of an id; None without one.

    If several items match, raise an error that lists them.
    """
    digits = _digits(text)
    ids = [(_digits(str(id_of(item))), item) for item in items]
    exact = [item for id, item in ids if id == digits]
    if exact:
        return exact[0]
    near = [item for id, item in ids if id.startswith(digits) or id.endswith(digits)]
    if len(digits) < LEAST or not near:
        return None
    if len(near) > 1:
        shown = ", ".join(str(id_of(item)) for item in near[:5])
        raise UsageError(f"{text!r} matches {len(near)} {what}; give more characters: {shown}", id=text)
    return near[0]


def _digits(text: str) -> str:
    return text.strip().lower().replace("-", "")
