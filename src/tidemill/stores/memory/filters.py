"""Paging of rows in memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import UUID

from tidemill.domain.filters import Page, Sort, decode_cursor, encode_cursor, fitting, page_size

T = TypeVar("T")


def page_of(
    rows: Iterable[T], id_of: Callable[[T], UUID], *, sort: Sort, limit: int, after: str | None,
    weigh: Callable[[T], int] = lambda _: 0,
) -> Page[T]:  # fmt: skip
    """The rows after the cursor in the order of their ids, and the next cursor. ``weigh`` returns the size of a row in bytes."""
    size = page_size(limit)
    candidates = first_of(rows, id_of, sort=sort, size=size + 1, after=after)
    items = candidates[: fitting(map(weigh, candidates[:size]))]
    return Page(items, encode_cursor(sort, id_of(items[-1])) if len(candidates) > len(items) else None)


def page_with_text(
    rows: Iterable[T], id_of: Callable[[T], UUID], jobs: Callable[[T], bool], *,
    sort: Sort, limit: int, after: str | None, look: int, weigh: Callable[[T], int] = lambda _: 0,
) -> Page[T]:  # fmt: skip
    """The same, of those among the next ``look`` rows that contain the text."""
    size = page_size(limit)
    looked = first_of(rows, id_of, sort=sort, size=look, after=after)
    items = [row for row in looked if jobs(row)]
    kept = items[: fitting(map(weigh, items[:size]))]
    if len(items) > len(kept):
        return Page(kept, encode_cursor(sort, id_of(kept[-1])))
    return Page(items, encode_cursor(sort, id_of(looked[-1])) if len(looked) == look else None)


def first_of(
    rows: Iterable[T], id_of: Callable[[T], UUID], *, sort: Sort, size: int, after: str | None
) -> list[T]:
    """The first rows after the cursor."""
    last = None if after is None else decode_cursor(sort, after).int

    def number(row: T) -> int:
        return id_of(row).int

    if sort is Sort.NEWEST:
        return heapq.nlargest(size, (row for row in rows if last is None or number(row) < last), key=number)
    return heapq.nsmallest(size, (row for row in rows if last is None or number(row) > last), key=number)
