"""Pages of several sources, merged by id into one.

Every source lists its items in the order of their ids, so one cursor, the last id, serves them all.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar
from uuid import UUID

from tidemill.domain.filters import Page, Sort, decode_cursor, encode_cursor, page_size

T = TypeVar("T")
Reader = Callable[[int, str | None], Page[T]]


@dataclass(frozen=True, slots=True)
class MergedReader(Generic[T]):
    """Readers whose pages are merged into one."""

    readers: list[Reader[T]]
    id_of: Callable[[T], UUID]
    sort: Sort

    def page(self, limit: int, after: str | None) -> Page[T]:
        """Return one page. It ends early where a reader has stopped, because the others may not pass that id."""
        size = page_size(limit)
        if after is not None:
            decode_cursor(self.sort, after)
        pages = [read(size, after) for read in self.readers]
        ends = [decode_cursor(self.sort, page.next) for page in pages if page.next is not None]
        horizon = min(ends, key=self._rank) if ends else None
        merged = heapq.merge(*(page.items for page in pages), key=lambda item: self._rank(self.id_of(item)))
        items = list(islice(self._once(merged, horizon), size + 1))
        if len(items) > size:
            return Page(items[:size], encode_cursor(self.sort, self.id_of(items[size - 1])))
        return Page(items, None if horizon is None else encode_cursor(self.sort, horizon))

    def _once(self, merged: Iterable[T], horizon: UUID | None) -> Iterator[T]:
        """Yield each job once up to the horizon; ``merge`` keeps the order of the readers for equal ids."""
        seen: UUID | None = None
        for item in merged:
            id = self.id_of(item)
            if horizon is not None and self._rank(id) > self._rank(horizon):
                return
            if id != seen:
                seen = id
                yield item

    def _rank(self, id: UUID) -> int:
        return id.int if self.sort is Sort.OLDEST else -id.int
