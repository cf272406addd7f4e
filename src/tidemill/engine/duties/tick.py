"""Tick: a wake-up that was lost is repeated, and everybody hears that the duties are done.

Idle workers need not ask the store as long as they hear it.
"""

from __future__ import annotations

from datetime import timedelta

from tidemill.engine.duties.settle import wake
from tidemill.engine.duty import Done, Duty
from tidemill.engine.ear import TICK
from tidemill.stores.base import Store

EVERY = timedelta(seconds=5)


class Tick:
    """Says ``tick``, and ``ready:{queue}`` for each queue in which jobs are pending."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self) -> Done:
        queues = {lane.queue for lane in self._store.lanes()}
        wake(self._store, {TICK, *(f"ready:{queue}" for queue in queues)})
        return Done(len(queues))

    def duty(self, every: timedelta = EVERY) -> Duty:
        """As a duty."""
        return Duty("tick", every, self)
