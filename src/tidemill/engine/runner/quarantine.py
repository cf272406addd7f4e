"""Crash suspects, which run only while no other job runs in their runner."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence

from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.exchange.planner import Planner
from tidemill.engine.executors.local import withdrawn


class Quarantine:
    """Holds suspects back until the runner is empty, then starts them one at a time.

    The runner claims nothing until the last suspect has ended. ``begin`` starts a suspect on its executor. ``look`` is
    called every tenth of a second while the runner holds any job.
    """

    def __init__(
        self, planner: Planner, begin: Callable[[HeldJob], None], reopened: Callable[[], None]
    ) -> None:
        self._planner, self._begin, self._reopened = planner, begin, reopened
        self._lock = threading.Lock()
        self._waiting: deque[HeldJob] = deque()
        self._running: HeldJob | None = None

    @property
    def is_shut(self) -> bool:
        """Whether the runner claims nothing because of suspects."""
        return self._planner.shut

    def add(self, jobs: Sequence[HeldJob]) -> None:
        """Hold these suspects back."""
        if jobs:
            with self._lock:
                self._waiting.extend(jobs)
                self._planner.shut = True

    def look(self, holding: Collection[HeldJob]) -> None:
        """Start the next suspect if nothing else runs, and allow claims again after the last one."""
        if not self._planner.shut:
            return
        with self._lock:
            if self._running is not None and (self._running.over or self._running.lost):
                self._running = None
            kept = set(map(id, self._waiting))
            busy = any(id(held) not in kept and not (held.over or held.lost) for held in holding)
            chosen = self._waiting.popleft() if self._waiting and not busy and self._running is None else None
            self._running = chosen or self._running
            if not self._waiting and self._running is None:
                self._planner.shut = False
        if chosen is not None:
            self._begin(chosen)
        elif not self._planner.shut:
            self._reopened()

    def withdraw(self, held: HeldJob | None = None) -> list[HeldJob]:
        """Remove and return suspects that have not started: this job, or all of them."""
        with self._lock:
            return withdrawn(self._waiting, held)
