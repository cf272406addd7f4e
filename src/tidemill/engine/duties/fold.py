"""Fold: merges the journal of ends into rollups, old rollups into longer units, and failures of jobs that are gone.

It also samples the depth of queues.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemill.clock import Clock
from tidemill.domain.depths import sample_minute
from tidemill.domain.failures import KEPT, MERGED_AFTER
from tidemill.domain.rollups import LENGTHS, Compaction, Expiry, Unit, compactions, expiries
from tidemill.engine.duties.sample import SampleDepths
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=10)
_BATCH = 5_000  # rows of the journal; each has the jobs of one group of one batch
_SELDOM = 6  # compacts in every sixth run, drops in the next one, and merges samples in the one after
_RARELY = 60  # drops and merges failures in every sixtieth run


class FoldEnds:
    """Folds one batch of the journal for each run, and in some runs does one part of the upkeep.

    With a clock, it asks the store for the time only once a minute; without one, in every run.
    """

    def __init__(self, store: Store, clock: Clock | None = None, *, batch: int = _BATCH) -> None:
        self._store, self._clock, self._batch = store, clock, batch
        self._turn = 0
        self._sample = SampleDepths(store)
        self._now: datetime | None = None
        self._next_minute = 0.0
        self._compacted: list[Compaction] = []
        self._dropped: list[Expiry] = []

    def __call__(self) -> Done:
        now = self._minute_now()
        # First, because a large journal must not delay the sample of a minute.
        sampled = self._sample(now)
        folded = self._store.fold_ends(limit=self._batch) + sampled
        if folded - sampled >= self._batch:
            return Done(folded, more=True)
        self._turn += 1
        return Done(folded + self._upkeep(now))

    def _minute_now(self) -> datetime:
        """The store's time, or an earlier time in the same minute."""
        if self._clock is None:
            return self._store.now()
        moment = self._clock.monotonic()
        if self._now is None or moment >= self._next_minute:
            self._now = self._store.now()
            left = sample_minute(self._now) + LENGTHS[Unit.MINUTE] - self._now
            self._next_minute = moment + left.total_seconds()
        return self._now

    def _upkeep(self, now: datetime) -> int:
        turn = self._turn % _SELDOM
        if turn == 1:
            return self._compact(now) + (self._merge_failures(now) if self._turn % _RARELY == 1 else 0)
        if turn == 2:
            return self._drop(now)
        return self._sample.merge(now) if turn == 3 else 0

    def _compact(self, now: datetime) -> int:
        """Compact what has become old enough since the last time; only whole slots of the longer unit are merged."""
        rows, due = 0, compactions(now)
        for compaction in due:
            while compaction not in self._compacted and (merged := self._store.compact_rollups(compaction)):
                rows += merged
        self._compacted = due
        return rows

    def _drop(self, now: datetime) -> int:
        """Drop rollups, once a day."""
        due = expiries(now)
        rows = sum(self._store.drop_rollups(expiry) for expiry in due if expiry not in self._dropped)
        self._dropped = due
        return rows

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
