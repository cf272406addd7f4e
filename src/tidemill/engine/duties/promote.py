"""Promote: makes scheduled and delayed jobs pending when they are due."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from tidemill.clock import Clock
from tidemill.domain.calls import call_for
from tidemill.engine.duties.settle import wake
from tidemill.engine.duties.tick import TickDuty
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=5)
BATCH = 500
REPEATED = timedelta(milliseconds=50)
"""The time after which the leader looks whether the jobs of a call are still pending."""

_GAP = 0.2  # seconds between two such looks


class Promote:
    """Promotes one batch, the earliest first, and notifies the workers of its queues.

    It is next needed when the next job is due. With ``tick``, the same query also returns the queues with pending jobs,
    and the same notification includes the tick.
    """

    def __init__(
        self, store: Store, *, batch: int = BATCH, tick: TickDuty | None = None, random: Random | None = None
    ) -> None:
        self._store, self._batch, self._tick, self._random = store, batch, tick, random

    def __call__(self) -> Done:
        tick = self._tick if self._tick is not None and self._tick.due else None
        moved, lanes, next_run_at, queues = self._store.promote(self._batch, look=tick is not None)
        topics = {f"ready:{lane.queue}" for lane in lanes}
        if tick is not None:
            # Without a call: the tick repeats lost wake-ups.
            topics |= tick.topics(queues)
        elif topics and self._random is not None:
            topics.add(call_for(moved, self._random.getrandbits(30)))
        wake(self._store, topics)
        return Done(moved, next_run_at, more=moved >= self._batch)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop. A newly scheduled job also wakes it."""
        return Duty("promote", every, self, frozenset({"scheduled", "change"}))


class Repeat:
    """Notifies all workers of queues that still have pending jobs shortly after a call.

    The called workers may be busy, may not know the task, or may not have received the call.
    """

    def __init__(self, store: Store, clock: Clock, tick: TickDuty) -> None:
        self._store, self._clock, self._tick = store, clock, tick
        self._looked_at = float("-inf")

    def __call__(self) -> Done:
        if not self._tick.calls:
            return Done()
        self._looked_at = self._clock.monotonic()
        wake(self._store, {f"ready:{queue}" for queue in self._store.promote(0, look=True).queues})
        return Done()

    def due(self, topics: frozenset[str]) -> float | None:
        """The monotonic time of the next look after these wake-ups; None if they need none."""
        if not self._tick.calls or not any(topic.startswith("call:") for topic in topics):
            return None
        return max(self._clock.monotonic() + REPEATED.total_seconds(), self._looked_at + _GAP)

    def duty(self) -> Duty:
        """This duty for the loop."""
        return Duty("repeat", timedelta(hours=1), self, due_after=self.due, beside="promote")
