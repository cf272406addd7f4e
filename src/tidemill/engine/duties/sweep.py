"""Sweep: deletes old workers, expired unique keys and unused counts of limits."""

from __future__ import annotations

from datetime import timedelta

from tidemill.delivery.notification_duty import drop_expired
from tidemill.domain.limits import memory_of
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=60)
KEEP = timedelta(hours=1)
IDLE = timedelta(days=1)
"""How long an untouched limit count of zero is kept, unless a rule needs a longer period."""
_COUNTS, _SELDOM = 10_000, 10  # maximum counts per sweep, in every tenth run


class Sweep:
    """Keeps workers listed for ``keep`` after their lease has ended, so that operators can see which ones are missing."""

    def __init__(self, store: Store, *, keep: timedelta = KEEP) -> None:
        self._store, self._keep = store, keep
        self._turn = 0

    def __call__(self) -> Done:
        swept, self._turn = self._store.sweep(self._keep), self._turn + 1
        swept += self._drop_subscriptions()
        if self._turn % _SELDOM == 0:
            swept += self._store.forget_uses(memory_of(self._store.rules(), IDLE), limit=_COUNTS)
        return Done(swept)

    def _drop_subscriptions(self) -> int:
        """Remove subscriptions that their processes no longer renew, and learn the others for the other duties."""
        return drop_expired(self._store, self._store.now())

    def duty(self, every: timedelta = EVERY) -> Duty:
        """This duty for the loop."""
        return Duty("sweep", every, self)
