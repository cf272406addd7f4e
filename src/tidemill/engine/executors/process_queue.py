"""The executor for jobs in child processes: its waiting jobs and its children."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.outcome import STOPPING, Snoozed, TimedOut
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.executors.local import enqueue, withdrawn
from tidemill.engine.runner.execution import ExecutionEnd
from tidemill.engine.worker_settings import WorkerSettings
from tidemill.tasks.confinement import Container
from tidemill.tasks.events import Subscriber

if TYPE_CHECKING:
    from tidemill.engine.executors.processes import ProcessExecutor

SUSPECTS = 8
"""Maximum number of crash suspects that one runner runs at a time. Fewer threads or little memory lower it."""

AGAIN, LATEST = 0.3, 5.0
"""Seconds for which a suspect without a free process is postponed: initial and maximum delay."""

_REMEMBERED = 10_000


def most_suspects(children: int, threads: int) -> int:
    """The maximum number of crash suspects that run or wait in one runner.

    >>> most_suspects(2, 10), most_suspects(20, 10)
    (16, 40)
    """
    return 2 * max(children, min(threads, SUSPECTS))


class ProcessQueue:
    """Runs as many jobs at a time as there are children. Crash suspects may use additional spare children.

    ``begin`` is called on a thread of this lane when a child is ready for a job. It returns False if the job is no
    longer held.
    """

    def __init__(
        self,
        app_path: str | None,
        settings: WorkerSettings,
        clock: Clock,
        begin: Callable[[HeldJob], bool],
        on_ended: Callable[[HeldJob, ExecutionEnd | None], None],
        publish: Subscriber = lambda _event: None,
        *,
        store_name: str | None = None,
    ) -> None:
        self._begin, self._on_ended = begin, on_ended
        self._lock = threading.RLock()  # reentrant: a job may end, and the next one begin, inside submit
        self._waiting: deque[HeldJob] = deque()
        self._processes: ProcessExecutor | None = None
        self._put_off: dict[UUID, int] = {}  # how often each suspect was postponed
        self._most = most_suspects(settings.children, settings.threads)
        self._swept = False
        if app_path is not None and settings.children:
            from tidemill.engine.executors.processes import ProcessExecutor

            self._processes = ProcessExecutor(
                app_path,
                settings.children,
                clock,
                spare=self._most // 2 - settings.children,
                patience=settings.patience,
                publish=publish,
                store_name=store_name,
            )

    @property
    def is_open(self) -> bool:
        """Whether this lane can have children at all."""
        return self._processes is not None

    def resize(self, children: int, threads: int) -> None:
        """Change the number of children. Jobs that run finish."""
        if self._processes is not None:
            with self._lock:
                self._most = most_suspects(children, threads)
                self._processes.resize(children, self._most // 2 - children)
            self._fill()

    def submit(self, jobs: Sequence[HeldJob]) -> None:
        """Run these jobs as children become free."""
        enqueue(self._waiting, jobs)
        self._fill()

    def admit(self, jobs: list[HeldJob]) -> tuple[list[HeldJob], list[tuple[HeldJob, Snoozed]]]:
        """Split the jobs into those that may wait here, and suspects to postpone, with their delays.

        Another runner may have a free process for a postponed suspect sooner. As many suspects as the children can run
        may wait here, so that no child is idle.
        """
        if not jobs or self._processes is None:
            return jobs, []
        suspects = [held for held in jobs if held.claim.crashes]
        room = max(0, self._most - self._processes.running - len(self._waiting))
        if len(suspects) <= room:
            return jobs, []
        if len(self._put_off) > _REMEMBERED:
            self._put_off.clear()
        excess = {held: self._snoozed(held.claim.id) for held in suspects[room:]}
        return [held for held in jobs if held not in excess], list(excess.items())

    def _snoozed(self, id: UUID) -> Snoozed:
        times = self._put_off[id] = self._put_off.get(id, -1) + 1
        delay = timedelta(seconds=min(AGAIN * 2.0 ** min(times, 10), LATEST))
        return Snoozed(delay, "waiting for a free process")

    def look(self) -> None:
        """Try again to start children that could not be started before."""
        if self._waiting:
            self._fill()

    def _fill(self) -> None:
        assert self._processes is not None
        over: list[HeldJob] = []
        with self._lock:
            passed: list[HeldJob] = []
            while self._waiting and self._processes.places(spare=True) > 0:
                held = self._waiting.popleft()
                suspect = bool(held.claim.crashes)
                if not held.is_open:
                    over.append(held)
                elif self._processes.places(spare=suspect) <= 0:
                    passed.append(held)
                else:
                    self._sweep(held)
                    begin, end = partial(self._begin, held), partial(self._ended, held)
                    self._processes.submit(
                        held.claim,
                        held.details,
                        held,
                        held.claim.timeout,
                        end,
                        begin,
                        spare=suspect,
                        confinement=held.declared.options.confinement,
                    )
            self._waiting.extendleft(reversed(passed))
        for held in over:
            self._on_ended(held, None)

    def _sweep(self, held: HeldJob) -> None:
        """Before the first job in a container, remove those of runners that were killed."""
        confinement = held.declared.options.confinement
        if self._swept or not isinstance(confinement, Container):
            return
        self._swept = True
        from tidemill.engine.confinement.containers import remove_leftovers, working_runtime

        if (runtime := working_runtime(confinement.runtime)) is not None:
            threading.Thread(
                target=remove_leftovers, args=(runtime,), name="tidemill-container-sweep", daemon=True
            ).start()

    def _ended(self, held: HeldJob, ended: ExecutionEnd) -> None:
        if isinstance(ended.outcome, TimedOut) and ended.outcome.retryable is None:
            ended = ended._replace(outcome=held.timed_out_after(ended.outcome.limit))
        self._on_ended(held, ended)
        if self._waiting:
            self._fill()

    def withdraw(self, held: HeldJob | None = None) -> list[HeldJob]:
        """Remove jobs that have not begun: this job, or all of them."""
        with self._lock:
            return withdrawn(self._waiting, held)

    def stop(self, held: HeldJob) -> None:
        """Ask a job to stop. It is killed after the worker's patience."""
        if self._processes is not None:
            self._processes.cancel(held.claim.id, held.cancel_reason or STOPPING)

    def close(self) -> None:
        """End the children."""
        if self._processes is not None:
            self._processes.close(1.0)
