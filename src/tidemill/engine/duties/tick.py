"""Tick: repeats lost wake-ups, and shows all workers that the duties run.

Idle workers need not poll the store while they receive ticks. The tick is part of promoting, which runs equally often,
to keep the number of queries of an idle store low.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

from tidemill.clock import Clock
from tidemill.domain.calls import UNKNOWN, fleet_of
from tidemill.domain.cluster import Worker
from tidemill.engine.listener import TICK

EVERY = timedelta(seconds=5)


COUNTED = timedelta(seconds=15)
"""How often the leader counts the workers."""


class TickDuty:
    """The topics of a tick: ``tick``, ``ready:{queue}`` for each queue with pending jobs, and the size of the fleet.

    The size is announced only with ``workers_of``, which lists the workers: that is for a leader, because the workers of a large
    fleet leave calls to others and rely on the leader to repeat them.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        every: timedelta = EVERY,
        workers_of: Callable[[], Sequence[Worker]] | None = None,
    ) -> None:
        self._clock, self._workers_of = clock, workers_of
        self._fleet, self._counted_at = UNKNOWN, float("-inf")
        # Calls come at irregular times. A somewhat early tick is better than one that is much too late.
        self._gap = every.total_seconds() / 2
        self._told_at = float("-inf")

    @property
    def due(self) -> bool:
        """Whether the next tick is due."""
        return self._clock.monotonic() - self._told_at >= self._gap

    def topics(self, queues: Collection[str]) -> frozenset[str]:
        """The topics to notify now, given the queues with pending jobs. The caller sends them."""
        self._told_at = now = self._clock.monotonic()
        if self._workers_of is not None and now - self._counted_at >= COUNTED.total_seconds():
            self._fleet, self._counted_at = fleet_of(self._workers_of()), now
        return frozenset({TICK, *(f"ready:{queue}" for queue in queues), *self._fleet.topics})

    @property
    def calls(self) -> bool:
        """Whether this leader announces the size of the fleet, so that workers may leave calls to others."""
        return bool(self._fleet.topics)
