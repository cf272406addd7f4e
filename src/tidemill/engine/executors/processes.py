"""The executor for jobs in warm child processes.

Every job can be stopped, whatever it does, and harms no other job. Every slot has a thread that starts its child,
exchanges messages with it and reaps it. One more thread, the keeper, kills overdue children, so that neither a hanging
store nor an unresponsive child can delay a deadline. The executor decides nothing about jobs: it reports how they
ended.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import Claim, Details
from tidemill.domain.outcome import Cancelled, Outcome, Released
from tidemill.engine.context import Outlet
from tidemill.engine.executors.child_process import ChildProcess, kill_all
from tidemill.engine.executors.process_slot import ChildJob, ProcessSlot
from tidemill.engine.process_memory import room_for_another
from tidemill.engine.runner.execution import ExecutionEnd
from tidemill.errors import BadSettings, UsageError
from tidemill.tasks.confinement import Confinement
from tidemill.tasks.events import Subscriber

_log = logging.getLogger("tidemill.engine")

PATIENCE = timedelta(seconds=5)
START_LIMIT = timedelta(seconds=60)
MAX_JOBS = 1_000
STOPPED = "the worker stopped"
_LONGEST_REST = 30.0
_NEVER = float("inf")


class ProcessExecutor:
    """Runs up to ``slots`` jobs at a time, each in its own process.

    Children are started when they are first needed, or by ``warm``, and reused; each is replaced after ``max_jobs``. A
    job that was asked to stop has ``patience`` before it is killed. ``start_limit`` is the time to import the app. Up
    to ``spare`` more jobs may run if there is memory for them; their children end when no job waits for them.
    ``publish`` receives the jobs' events.
    """

    def __init__(
        self,
        app_path: str,
        slots: int,
        clock: Clock,
        *,
        spare: int = 0,
        patience: timedelta = PATIENCE,
        max_jobs: int = MAX_JOBS,
        start_limit: timedelta = START_LIMIT,
        publish: Subscriber = lambda _event: None,
        store_name: str | None = None,
    ) -> None:
        if slots and os.name != "posix":
            raise BadSettings("jobs in processes of their own need a POSIX system; give children=0 here")
        self.app_path, self.clock, self.publish = app_path, clock, publish
        self.store_name = store_name
        self.max_jobs, self.start_limit = max_jobs, start_limit.total_seconds()
        self._patience = patience.total_seconds()
        self.changed = threading.Condition()
        self._slots = [
            ProcessSlot(self, number, spare=number > slots) for number in range(1, slots + spare + 1)
        ]
        self._keeper = threading.Thread(target=self._keep, name="tidemill-child-keeper", daemon=True)
        self._keeps_until = _NEVER  # when the keeper next wakes up
        self._closing = self._closed = False
        self._rest_until = -_NEVER
        self._failures = 0
        self._complaint: str | None = None  # the last logged error, to log it only once

    # Calls of the runner ---------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """The number of jobs that run or are about to begin."""
        with self.changed:
            return sum(slot.order is not None for slot in self._slots)

    @property
    def free(self) -> int:
        """How many more jobs can be taken now; none during the delay after a child failed to start."""
        return self.places(spare=False)

    def places(self, *, spare: bool) -> int:
        """How many more jobs can be taken now, with or without the spare slots."""
        with self.changed:
            if self._closing or self.resting() > 0:
                return 0
            return len(self._idle(spare=spare))

    def _idle(self, *, spare: bool) -> list[ProcessSlot]:
        idle = [slot for slot in self._slots if slot.order is None and (spare or not slot.spare)]
        # A spare child that is already running needs no additional memory.
        if any(slot.spare and not slot.is_ready for slot in idle) and not room_for_another():
            idle = [slot for slot in idle if not slot.spare or slot.is_ready]
        return idle

    def warm(self, seconds: float = 0.0) -> int:
        """Start all children before their first job, wait up to ``seconds`` for them, and return how many are ready."""
        with self.changed:
            kept = [slot for slot in self._slots if not slot.spare]
            for slot in kept:
                self._need(slot)
            end = self.clock.monotonic() + seconds
            while (ready := sum(slot.is_ready for slot in kept)) < len(kept):
                left = end - self.clock.monotonic()
                if left <= 0 or self._closing:
                    break
                self.changed.wait(left)
            return ready

    def submit(
        self,
        claim: Claim,
        details: Details,
        outlet: Outlet,
        timeout: timedelta | None,
        on_end: Callable[[ExecutionEnd], None],
        begin: Callable[[], bool] = lambda: True,
        *,
        spare: bool = False,
        confinement: Confinement | None = None,
    ) -> None:
        """Run a claim in a free slot. ``outlet``, ``on_end`` and ``begin`` are called on a thread of this executor.

        ``begin`` is called when a child is ready, before the job is sent to it. If it returns False, the job is not
        sent.
        """
        with self.changed:
            if self._closing:
                raise UsageError("the process lane is closed; it takes no more jobs")
            idle = self._idle(spare=spare)
            if not idle:
                raise UsageError(f"all {len(self._slots)} children are busy; look at free before you submit")
            # Prefer a spare slot if the job may use one, and leave the others to jobs that may not.
            slot = max(
                idle,
                key=lambda slot: (slot.spare, slot.confinement == confinement, slot.is_ready, slot.wanted),
            )
            slot.order = ChildJob(claim, details, outlet, timeout, on_end, begin, confinement)
            self._need(slot)

    def cancel(self, id: UUID, reason: str) -> bool:
        """Ask a job to stop, and kill it after the patience; return False if it is not here."""
        with self.changed:
            slot = self._slot_of(id)
            if slot is None or slot.order is None:
                return False
            if slot.order.cancel_reason is None:
                slot.order.cancel_reason = reason
                slot.order.expire(self.clock.monotonic() + self._patience, Cancelled(reason))
                self.expect(slot.order.due_at)
                slot.wake()
            return True

    def kill(self, id: UUID, outcome: Outcome) -> bool:
        """Kill a job with this outcome, unless it ends on its own at the same moment; return False if it is not here."""
        with self.changed:
            slot = self._slot_of(id)
            if slot is None or slot.order is None:
                return False
            child = slot.condemn(outcome)
        if child is not None:
            child.kill()
        return True

    def close(self, grace: float = 0.0) -> None:
        """Take no more jobs, give running ones ``grace`` seconds, release the rest and end all children.

        Blocks until done.
        """
        with self.changed:
            self._closing = True
            end = self.clock.monotonic() + grace
            for slot in self._slots:
                if slot.order is not None:
                    slot.order.expire(end, Released(STOPPED))
                slot.wake()
            self.expect(end)
        for slot in self._slots:
            slot.join()
        with self.changed:
            self._closed = True
            self.changed.notify_all()
        if self._keeper.is_alive() and self._keeper is not threading.current_thread():
            self._keeper.join(10)

    def _slot_of(self, id: UUID) -> ProcessSlot | None:
        found = (slot for slot in self._slots if slot.order is not None and slot.order.claim.id == id)
        return next(found, None)

    def _need(self, slot: ProcessSlot) -> None:
        if self._keeper.ident is None:
            self._keeper.start()
        slot.need()

    def resize(self, slots: int, spare: int) -> None:
        """Change the number of jobs that run at a time. Jobs that run finish; their children become spare ones."""
        with self.changed:
            for number in range(len(self._slots) + 1, slots + spare + 1):
                self._slots.append(ProcessSlot(self, number))
            for number, slot in enumerate(self._slots, start=1):
                slot.spare = number > slots
                slot.wake()

    # Calls of the slots ----------------------------------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether no more jobs are accepted."""
        return self._closing

    def resting(self) -> float:
        """Seconds until another child may be started."""
        return max(0.0, self._rest_until - self.clock.monotonic())

    def expect(self, at: float) -> None:
        """Note a new deadline; the caller holds the lock. The keeper is woken only if it would be too late otherwise."""
        if at < self._keeps_until:
            self.changed.notify_all()

    def started(self) -> None:
        """Record that a child is ready."""
        with self.changed:
            self._failures, self._complaint = 0, None
            self.changed.notify_all()

    def failed(self, why: str, trace: str | None = None) -> None:
        """Record that a child failed to start, and delay the next start, longer each time.

        Repeated errors are logged once.
        """
        with self.changed:
            if self.resting() == 0:
                rest = min(2.0**self._failures, _LONGEST_REST)
                self._failures += 1
                self._rest_until = self.clock.monotonic() + rest
            told, self._complaint = self._complaint == why, why
        if not told:
            _log.error(
                "no child process for %s: %s; jobs that need one wait%s",
                self.app_path,
                why,
                f"\n{trace}" if trace else "",
            )

    # Deadlines -------------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while True:
            with self.changed:
                while not (overdue := self._overdue()):
                    if self._closed:
                        return
                    now = self.clock.monotonic()
                    self._keeps_until = min((slot.due_at for slot in self._slots), default=_NEVER)
                    self.changed.wait(
                        None if self._keeps_until == _NEVER else max(0.0, self._keeps_until - now)
                    )
                    # The keeper is awake and looks at all deadlines again, so no change needs to wake it.
                    self._keeps_until = -_NEVER
            kill_all(overdue)

    def _overdue(self) -> list[ChildProcess]:
        now = self.clock.monotonic()
        found = [slot.condemn_overdue() for slot in self._slots if slot.due_at <= now]
        return [child for child in found if child is not None]
