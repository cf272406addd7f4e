"""Sample: stores the depth of every queue once a minute, and merges and drops old samples. A part of the duty ``fold``."""

from __future__ import annotations

from datetime import datetime

from tidemill.domain.depths import sample_minute
from tidemill.domain.rollups import compactions, days_before
from tidemill.stores.base import Store

_SELDOM = 5  # merges and drops in every fifth minute


class SampleDepths:
    """Measures once in each minute, unless another process did. That counts every waiting job. Returns the stored rows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._minute: datetime | None = None
        self._minutes = 0

    def __call__(self) -> int:
        now = self._store.now()
        minute = sample_minute(now)
        if minute == self._minute:
            return 0
        rows = self._store.put_depths(self._store.measure_depths(now=now), now=now)
        self._minute = minute
        self._minutes += 1
        return rows + (self._compact(now) if self._minutes % _SELDOM == 1 else 0)

    def _compact(self, now: datetime) -> int:
        rows = sum(self._store.compact_depths(compaction) for compaction in compactions(now))
        return rows + self._store.drop_depths(days_before(now))
