"""The lane of jobs that run alone, each in a process of its own: what waits for a child, and the children themselves."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidemill.clock import Clock
from tidemill.engine.execute import Ended
from tidemill.engine.held import STOPPING, Held
from tidemill.engine.lanes import withdrawn
from tidemill.engine.settings import WorkerSettings

if TYPE_CHECKING:
    from tidemill.engine.isolated import ProcessLane


class AloneLane:
    """As many jobs at a time as there are children; suspects of a crash may come in any number, and wait their turn.

    ``begin`` is called on a thread of the lane's when a child is ready for a job; False: it is not ours any more.
    """

    def __init__(
        self,
        app_path: str | None,
        settings: WorkerSettings,
        clock: Clock,
        begin: Callable[[Held], bool],
        on_ended: Callable[[Held, Ended | None], None],
    ) -> None:
        self._begin, self._on_ended = begin, on_ended
        self._lock = threading.RLock()  # a job may end, and the next begin, inside submit
        self._waiting: deque[Held] = deque()
        self._processes: ProcessLane | None = None
        if app_path is not None and settings.children:
            from tidemill.engine.isolated import ProcessLane

            self._processes = ProcessLane(app_path, settings.children, clock, patience=settings.patience)

    @property
    def is_open(self) -> bool:
        """Whether there can be children at all."""
        return self._processes is not None

    def submit(self, jobs: Sequence[Held]) -> None:
        """Run these, as children come free."""
        self._waiting.extend(jobs)
        self._fill()

    def look(self) -> None:
        """Children that could not be started may be tried again by now."""
        if self._waiting:
            self._fill()

    def _fill(self) -> None:
        assert self._processes is not None
        over: list[Held] = []
        with self._lock:
            while self._waiting and self._processes.free > 0:
                held = self._waiting.popleft()
                if held.settled:
                    over.append(held)
                    continue
                begin, end = partial(self._begin, held), partial(self._ended, held)
                self._processes.submit(held.claim, held.details, held, held.claim.timeout, end, begin)
        for held in over:
            self._on_ended(held, None)

    def _ended(self, held: Held, ended: Ended) -> None:
        self._on_ended(held, ended)
        if self._waiting:
            self._fill()

    def withdraw(self, held: Held | None = None) -> list[Held]:
        """Take back what has not begun: this job, or all of them."""
        with self._lock:
            return withdrawn(self._waiting, held)

    def stop(self, held: Held) -> None:
        """Ask a job to stop; after the worker's patience it is killed."""
        if self._processes is not None:
            self._processes.cancel(held.claim.id, held.cancel_reason or STOPPING)

    def close(self) -> None:
        """End the children."""
        if self._processes is not None:
            self._processes.close(1.0)
