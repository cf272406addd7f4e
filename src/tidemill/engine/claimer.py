"""What to ask the store for: the lanes there are, less what is paused, as requests for a claim. It claims nothing itself."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import Claim
from tidemill.domain.lanes import ClaimRequest, Watermarks
from tidemill.domain.ledger import PauseKind
from tidemill.engine.node import machine_name, own_queue, serves
from tidemill.engine.plan import Plan, Planner
from tidemill.stores.base import Store

REFRESH = 1.0
"""Seconds between two readings of the lanes while there is work; more where a reading is slow."""

PAUSES = 5.0
"""Seconds the pauses are believed when nobody says that they changed."""


class Claimer:
    """Knows the lanes and the pauses, as of their last reading.

    Whatever queues a worker was given, it also takes from its node's own queue, and never from that of another node.
    """

    def __init__(
        self, store: Store, clock: Clock, worker: UUID, queues: tuple[str, ...] | None, planner: Planner
    ) -> None:
        self._store, self._clock, self._worker = store, clock, worker
        self._node = machine_name()
        self._queues = None if queues is None else (*queues, own_queue(self._node))
        self._planner = planner
        self._lock = threading.Lock()
        self._marks = Watermarks()
        self._paused: frozenset[tuple[PauseKind, str]] = frozenset()
        self._read_at = self._pauses_at = float("-inf")
        self._pause = REFRESH

    def is_stale(self) -> bool:
        """Whether the lanes were read too long ago for a worker that is busy."""
        return self._clock.monotonic() - self._read_at >= self._pause

    @property
    def must_look(self) -> bool:
        """Whether somebody changed something: then nothing is claimed before it is known what."""
        return self._pauses_at == float("-inf")

    @property
    def read_at(self) -> float:
        """When the lanes were last read, by the monotonic clock."""
        return self._read_at

    def forget_pauses(self) -> None:
        """Somebody changed something: the pauses are read again with the lanes."""
        self._pauses_at = float("-inf")

    def refresh(self) -> None:
        """Read the lanes, and the pauses if it is time."""
        begun = self._clock.monotonic()
        if begun - self._pauses_at >= PAUSES:
            self._pauses_at = (
                begun  # before they are read: whoever changes them meanwhile has them read again
            )
            try:
                self._paused = frozenset((pause.kind, pause.name) for pause in self._store.pauses())
            except BaseException:
                self.forget_pauses()
                raise
        lanes = [lane for lane in self._store.lanes(self._queues) if serves(lane.queue, self._node)]
        with self._lock:
            self._marks.seen(lanes)
            self._read_at = self._clock.monotonic()
            self._pause = max(REFRESH, 50 * (self._read_at - begun))

    def request(self, plan: Plan, *, remembered: bool = False) -> ClaimRequest | None:
        """The plan as a claim; None where nothing is known to wait, or all of it is paused."""
        with self._lock:
            if remembered:
                self._marks.remember()
            lanes = self._marks.lanes()
            paused = self._paused
        if paused:
            if any(kind is PauseKind.ALL for kind, _ in paused):
                return None
            lanes = [
                lane
                for lane in lanes
                if (PauseKind.QUEUE, lane.queue) not in paused
                and (PauseKind.TENANT, lane.tenant) not in paused
            ]
        tasks = self._tasks(plan.kinds)
        if not lanes or not tasks:
            return None
        return ClaimRequest(self._worker, lanes, plan.limit, tasks, plan.start)

    def _tasks(self, kinds: Iterable[str]) -> Sequence[str]:
        """Only tasks this worker knows: the others wait for one who does."""
        names = [name for kind in kinds for name in self._planner.kinds[kind].tasks]
        if not self._paused:
            return names
        return [name for name in names if (PauseKind.TASK, name) not in self._paused]

    def claimed(self, claims: Sequence[Claim]) -> None:
        """Raise the marks."""
        with self._lock:
            self._marks.claimed(claims)
