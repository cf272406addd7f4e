"""Sample: stores the depth of every queue once a minute, and merges and drops old samples. A part of the duty ``fold``."""

from __future__ import annotations

from datetime import datetime

from tidemill.domain.depths import sample_minute
from tidemill.domain.rollups import Compaction, compactions, days_before
from tidemill.stores.base import Store


class SampleDepths:
    """Measures once in each minute, unless another process did. That counts every waiting job. Returns the stored rows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._minute: datetime | None = None
        self._merged: list[Compaction] = []

    def __call__(self, now: datetime) -> int:
        minute = sample_minute(now)
        if minute == self._minute:
            return 0
        rows = self._store.put_depths(self._store.measure_depths(now=now), now=now)
        self._minute = minute
        return rows

    def merge(self, now: datetime) -> int:
        """Merge and drop old samples, at most once in a quarter of an hour, because only whole slots are merged.

        Without samples of minutes to merge, longer units hardly grow, so they are left alone.
        """
        due = compactions(now)
        if due == self._merged:
            return 0
        shortest, *longer = due
        rows = self._store.compact_depths(shortest)
        if rows:
            rows += sum(self._store.compact_depths(compaction) for compaction in longer)
            rows += self._store.drop_depths(days_before(now))
        self._merged = due
        return rows
