"""Sweep: workers that ended long ago and hold nothing are forgotten, and unique keys whose window has passed."""

from __future__ import annotations

from datetime import timedelta

from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=60)
KEEP = timedelta(hours=1)


class Sweep:
    """Workers stay listed for ``keep`` after their lease has ended, so that one can see who is missing."""

    def __init__(self, store: Store, *, keep: timedelta = KEEP) -> None:
        self._store, self._keep = store, keep

    def __call__(self) -> Done:
        return Done(self._store.sweep(self._keep))

    def duty(self, every: timedelta = EVERY) -> Duty:
        """As a duty."""
        return Duty("sweep", every, self)
