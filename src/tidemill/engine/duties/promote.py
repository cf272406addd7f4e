"""Promote: makes scheduled and delayed jobs pending when they are due."""

from __future__ import annotations

from datetime import timedelta

from tidemill.engine.duties.settle import wake
from tidemill.engine.duties.tick import TickDuty
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=5)
BATCH = 500


class Promote:
    """Promotes one batch, the earliest first, and notifies the workers of its queues.

    It is next needed when the next job is due. With ``tick``, the same query also returns the queues with pending jobs,
    and the same notification includes the tick.
    """

    def __init__(self, store: Store, *, batch: int = BATCH, tick: TickDuty | None = None) -> None:
        self._store, self._batch, self._tick = store, batch, tick

    def __call__(self) -> Done:
        tick = self._tick if self._tick is not None and self._tick.due else None
        moved, lanes, next_run_at, queues = self._store.promote(self._batch, look=tick is not None)
        topics = {f"ready:{lane.queue}" for lane in lanes}
        wake(self._store, topics if tick is None else topics | tick.topics(queues))
        return Done(moved, next_run_at, more=moved >= self._batch)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop. A newly scheduled job also wakes it."""
        return Duty("promote", every, self, frozenset({"scheduled", "change"}))
