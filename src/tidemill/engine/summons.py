"""Which wake-ups one worker answers: those for its queues, and of calls only the ones for it."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.calls import UNKNOWN, is_called, read_calls, read_fleet
from tidemill.engine.listener import TICK
from tidemill.engine.node import concerns, own_queues
from tidemill.engine.worker_settings import TRUSTED
from tidemill.stores.wakeup_messages import DISCONNECTED


class Summons:
    """Remembers the size of the fleet from the leader's ticks.

    Without a recent tick the worker answers every call, because no leader would repeat it.
    """

    def __init__(self, worker: UUID, queues: Collection[str] | None, node: str, clock: Clock) -> None:
        self._worker, self._queues, self._node, self._clock = worker, queues, node, clock
        self._own = frozenset(own_queues(node, worker))
        self._fleet, self._ticked_at = UNKNOWN, float("-inf")

    def answers(self, topics: frozenset[str]) -> bool:
        """Whether the worker should look for jobs after these wake-ups."""
        if DISCONNECTED in topics:
            self._ticked_at = float("-inf")
        elif TICK in topics:
            self._fleet, self._ticked_at = read_fleet(topics), self._clock.monotonic()
        ready = [topic for topic in topics if concerns(topic, self._queues, self._node, self._worker)]
        if not ready:
            return False
        calls = read_calls(topics)
        if not calls or self._clock.monotonic() - self._ticked_at >= TRUSTED:
            return True
        queues = [topic.removeprefix("ready:") for topic in ready]
        return any(
            queue in self._own or is_called(self._worker, calls, self._fleet.serving(queue))
            for queue in queues
        )
