"""Pagination of lists that are read in full.

The cursor is the sort key of the last item, so insertions do not shift the following pages.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import TypeVar

from tidemill.errors import BadFilter

T = TypeVar("T")


def page_of(
    items: Iterable[T], place: Callable[[T], str], limit: int, cursor: str | None
) -> tuple[list[T], str | None]:
    """Return the items after the cursor in order, and the cursor of the next page.

    >>> page_of(["c", "a", "b"], str, 2, None)
    (['a', 'b'], 'Yg')
    >>> page_of(["c", "a", "b"], str, 2, "Yg")
    (['c'], None)
    """
    ordered = sorted(((place(item), item) for item in items), key=lambda pair: pair[0])
    if cursor is not None:
        after = _decoded(cursor)
        ordered = [pair for pair in ordered if pair[0] > after]
    chosen = ordered[:limit]
    following = _encoded(chosen[-1][0]) if len(ordered) > limit else None
    return [item for _, item in chosen], following


def _encoded(place: str) -> str:
    return base64.urlsafe_b64encode(place.encode()).decode().rstrip("=")


def _decoded(cursor: str) -> str:
    try:
        place = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except (binascii.Error, ValueError):
        place = ""
    if not place or _encoded(place) != cursor:
        raise BadFilter("invalid cursor; start again without it", cursor=cursor)
    return place
