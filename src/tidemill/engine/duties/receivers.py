"""Receivers: wakes suspended jobs whose signal or event has arrived, and deletes old events.

Senders and workers wake the jobs themselves. This duty finds the jobs of those that died in between.
"""

from __future__ import annotations

from datetime import timedelta

from tidemill.clock import Clock
from tidemill.domain.signals import EVENTS_KEPT
from tidemill.engine.duties.settle import wake
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=5)
REST = timedelta(seconds=30)
RECENT = timedelta(minutes=10)
"""How old a signal or event may be that most runs consider."""
_ALL_EVERY = (
    3600.0  # seconds between two searches without that bound: the transaction of a sender may take long
)
_DROP_EVERY = 600.0
_BATCH, _DROPS = 500, 5_000


class WakeReceivers:
    """Wakes one batch of jobs. The first run, also after a change of the leader, considers all signals and events."""

    def __init__(self, store: Store, clock: Clock, *, batch: int = _BATCH) -> None:
        self._store, self._clock, self._batch = store, clock, batch
        self._searched = self._dropped = self._called = float("-inf")

    def __call__(self) -> Done:
        now = self._clock.monotonic()
        taken_over, self._called = now - self._called > 3 * REST.total_seconds(), now
        everything = taken_over or now - self._searched >= _ALL_EVERY
        woken = self._store.wake_receivers(within=None if everything else RECENT, limit=self._batch)
        wake(self._store, {f"ready:{receiver.queue}" for receiver in woken})
        more = len(woken) >= self._batch
        if everything and not more:
            self._searched = now
        return Done(len(woken) + self._drop(now), more=more)

    def _drop(self, now: float) -> int:
        """Delete one batch of events that are too old to be waited for."""
        if now - self._dropped < _DROP_EVERY:
            return 0
        dropped = self._store.drop_events(EVENTS_KEPT, limit=_DROPS)
        if dropped < _DROPS:
            self._dropped = now
        return dropped

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop. A sender that left receivers for it also wakes it."""
        return Duty("receivers", every, self, frozenset({"signals"}), at_rest=max(every, REST))
