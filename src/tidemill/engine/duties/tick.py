"""Tick: a wake-up that was lost is repeated, and everybody hears that the duties are done.

Idle workers need not ask the store as long as they hear it. It goes along with promoting, which looks as often: an idle store is to
be asked as little as can be.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from tidemill.clock import Clock
from tidemill.engine.ear import TICK

EVERY = timedelta(seconds=5)


class Tick:
    """What is to be said: ``tick``, and ``ready:{queue}`` for each queue in which jobs are pending."""

    def __init__(self, clock: Clock, *, every: timedelta = EVERY) -> None:
        self._clock = clock
        # Those who are called now and then say it somewhat early rather than much too late.
        self._gap = every.total_seconds() / 2
        self._said = float("-inf")

    @property
    def due(self) -> bool:
        """Whether it is time to say it again."""
        return self._clock.monotonic() - self._said >= self._gap

    def topics(self, queues: Collection[str]) -> frozenset[str]:
        """What to say now, if these queues have pending jobs; whoever asks says it."""
        self._said = self._clock.monotonic()
        return frozenset({TICK, *(f"ready:{queue}" for queue in queues)})
