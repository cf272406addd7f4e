"""Sweep: workers that ended long ago and hold nothing are forgotten, unique keys whose window has passed, and counts of limits
that nobody uses any more.
"""

from __future__ import annotations

from datetime import timedelta

from tidemill.domain.limits import memory_of
from tidemill.engine.duty import Done, Duty
from tidemill.stores.base import Store

EVERY = timedelta(seconds=60)
KEEP = timedelta(hours=1)
IDLE = timedelta(days=1)
"""How long a limit's count stays that is at zero and was not touched, unless a rule looks further back."""
_COUNTS, _SELDOM = 10_000, 10  # so many counts, in every tenth turn


class Sweep:
    """Workers stay listed for ``keep`` after their lease has ended, so that one can see who is missing."""

    def __init__(self, store: Store, *, keep: timedelta = KEEP) -> None:
        self._store, self._keep = store, keep
        self._turn = 0

    def __call__(self) -> Done:
        swept, self._turn = self._store.sweep(self._keep), self._turn + 1
        if self._turn % _SELDOM == 0:
            swept += self._store.forget_uses(memory_of(self._store.rules(), IDLE), limit=_COUNTS)
        return Done(swept)

    def duty(self, every: timedelta = EVERY) -> Duty:
        """As a duty."""
        return Duty("sweep", every, self)
