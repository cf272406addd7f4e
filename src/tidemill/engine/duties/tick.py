"""Tick: repeats lost wake-ups, and shows all workers that the duties run.

Idle workers need not poll the store while they receive ticks. The tick is part of promoting, which runs equally often,
to keep the number of queries of an idle store low.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from tidemill.clock import Clock
from tidemill.engine.listener import TICK

EVERY = timedelta(seconds=5)


class TickDuty:
    """The topics of a tick: ``tick``, and ``ready:{queue}`` for each queue with pending jobs."""

    def __init__(self, clock: Clock, *, every: timedelta = EVERY) -> None:
        self._clock = clock
        # Calls come at irregular times. A somewhat early tick is better than one that is much too late.
        self._gap = every.total_seconds() / 2
        self._told_at = float("-inf")

    @property
    def due(self) -> bool:
        """Whether the next tick is due."""
        return self._clock.monotonic() - self._told_at >= self._gap

    def topics(self, queues: Collection[str]) -> frozenset[str]:
        """The topics to notify now, given the queues with pending jobs. The caller sends them."""
        self._told_at = self._clock.monotonic()
        return frozenset({TICK, *(f"ready:{queue}" for queue in queues)})
