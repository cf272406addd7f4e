"""Fold: merges the journal of ends into rollups, old rollups into longer units, and failures of jobs that are gone.

It also samples the depth of queues.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.domain.failures import KEPT, MERGED_AFTER
from tidemill.domain.rollups import compactions, expiries
from tidemill.engine.duties.sample import SampleDepths
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=10)
_BATCH = 5_000  # rows of the journal; each has the jobs of one group of one batch
_SELDOM = 6  # compacts in every sixth run
_RARELY = 60  # drops and merges failures in every sixtieth run


class FoldEnds:
    """Folds one batch of the journal for each run, compacts one slot of each unit in some, and merges failures in few."""

    def __init__(self, store: Store, *, batch: int = _BATCH) -> None:
        self._store, self._batch = store, batch
        self._turn = 0
        self._sample = SampleDepths(store)

    def __call__(self) -> Done:
        # First, because a large journal must not delay the sample of a minute.
        sampled = self._sample()
        folded = self._store.fold_ends(limit=self._batch) + sampled
        if folded - sampled >= self._batch:
            return Done(folded, more=True)
        self._turn += 1
        return Done(folded + (self._compact() if self._turn % _SELDOM == 1 else 0))

    def _compact(self) -> int:
        now, rows = self._store.now(), 0
        for compaction in compactions(now):
            while merged := self._store.compact_rollups(compaction):
                rows += merged
        rows += sum(self._store.drop_rollups(expiry) for expiry in expiries(now))
        return rows + (self._merge_failures(now) if self._turn % _RARELY == 1 else 0)

    def _merge_failures(self, now: datetime) -> int:
        rows = self._store.drop_failures(now - KEPT)
        while True:
            merged = self._store.merge_failures(now - MERGED_AFTER, limit=self._batch)
            rows += merged
            if merged < self._batch:
                return rows

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop."""
        return Duty("fold", every, self)
