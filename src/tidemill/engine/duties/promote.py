"""Promote: scheduled jobs, and waiting ones whose delay is over, become pending when they are due; and every now and then a tick."""

from __future__ import annotations

from datetime import timedelta

from tidemill.engine.duties.settle import wake
from tidemill.engine.duties.tick import Tick
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=5)
BATCH = 500


class Promote:
    """One batch, the earliest first, and word to the workers of its queues. It is next needed when the next job is due.

    With ``tick``, whatever that has to say is found out by the same question, and said with it.
    """

    def __init__(self, store: Store, *, batch: int = BATCH, tick: Tick | None = None) -> None:
        self._store, self._batch, self._tick = store, batch, tick

    def __call__(self) -> Done:
        tick = self._tick if self._tick is not None and self._tick.due else None
        moved, lanes, next_run_at, queues = self._store.promote(self._batch, look=tick is not None)
        topics = {f"ready:{lane.queue}" for lane in lanes}
        wake(self._store, topics if tick is None else topics | tick.topics(queues))
        return Done(moved, next_run_at, more=moved >= self._batch)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """As a duty, also woken when a job is put off."""
        return Duty("promote", every, self, frozenset({"scheduled", "change"}))
