"""Promote: scheduled jobs, and waiting ones whose delay is over, become pending when they are due."""

from __future__ import annotations

from datetime import timedelta

from tidemill.engine.duties.settle import wake
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=5)
BATCH = 500


class Promote:
    """One batch, the earliest first, and word to the workers of its queues. It is next needed when the next job is due."""

    def __init__(self, store: Store, *, batch: int = BATCH) -> None:
        self._store, self._batch = store, batch

    def __call__(self) -> Done:
        moved, lanes, next_run_at = self._store.promote(self._batch)
        wake(self._store, {f"ready:{lane.queue}" for lane in lanes})
        return Done(moved, next_run_at, more=moved >= self._batch)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """As a duty, also woken when a job is put off."""
        return Duty("promote", every, self, frozenset({"scheduled", "change"}))
