"""The process lane: jobs in warm child processes, so that whatever a job does, it can be stopped and harms no other.

Every slot has a thread that starts its child, speaks with it and buries it. One more thread, the keeper, kills what is
overdue, so that no store that hangs and no child that does not listen can hold up a deadline. The lane decides nothing about
jobs: it says how they ended.
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
from tidemill.engine.execute import Ended
from tidemill.engine.offspring import Offspring, kill_all
from tidemill.engine.slot import Order, Slot
from tidemill.errors import BadSettings, UsageError

_log = logging.getLogger("tidemill.engine")

PATIENCE = timedelta(seconds=5)
START_LIMIT = timedelta(seconds=60)
MAX_JOBS = 1_000
STOPPED = "the worker stopped"
_LONGEST_REST = 30.0
_NEVER = float("inf")


class ProcessLane:
    """Up to ``slots`` jobs at a time, each in a process of its own.

    Children are started when they are first needed, or by ``warm``, and kept; each is replaced after ``max_jobs``. A job that
    was told to stop has ``patience`` before it is killed; ``start_limit`` is for importing the app.
    """

    def __init__(
        self,
        app_path: str,
        slots: int,
        clock: Clock,
        *,
        patience: timedelta = PATIENCE,
        max_jobs: int = MAX_JOBS,
        start_limit: timedelta = START_LIMIT,
    ) -> None:
        if slots and os.name != "posix":
            raise BadSettings("jobs in processes of their own need a POSIX system; give children=0 here")
        self.app_path, self.clock = app_path, clock
        self.max_jobs, self.start_limit = max_jobs, start_limit.total_seconds()
        self._patience = patience.total_seconds()
        self.changed = threading.Condition()
        self._slots = [Slot(self, number) for number in range(1, slots + 1)]
        self._keeper = threading.Thread(target=self._keep, name="tidemill-child-keeper", daemon=True)
        self._keeps_until = _NEVER  # when the keeper looks again by itself
        self._closing = self._closed = False
        self._rest_until = -_NEVER
        self._failures = 0
        self._complaint: str | None = None  # what was logged last, so that it is logged once

    # What the runner asks --------------------------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Jobs in hand, begun or about to."""
        with self.changed:
            return sum(slot.order is not None for slot in self._slots)

    @property
    def free(self) -> int:
        """How many more can be taken now; none while a child that could not start is given time."""
        with self.changed:
            if self._closing or self.resting() > 0:
                return 0
            return sum(slot.order is None for slot in self._slots)

    def warm(self, seconds: float = 0.0) -> int:
        """Start all children ahead of their first job, and wait so long for them; how many are ready."""
        with self.changed:
            for slot in self._slots:
                self._need(slot)
            end = self.clock.monotonic() + seconds
            while (ready := sum(slot.is_ready for slot in self._slots)) < len(self._slots):
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
        on_end: Callable[[Ended], None],
        begin: Callable[[], bool] = lambda: True,
    ) -> None:
        """Run a claim in a free slot. ``outlet``, ``on_end`` and ``begin`` are called on a thread of the lane's.

        ``begin`` when a child is ready for it, before it hears of the job; on False it never does.
        """
        with self.changed:
            if self._closing:
                raise UsageError("the process lane is closed; it takes no more jobs")
            idle = [slot for slot in self._slots if slot.order is None]
            if not idle:
                raise UsageError(f"all {len(self._slots)} children are busy; look at free before you submit")
            slot = max(idle, key=lambda slot: (slot.is_ready, slot.wanted))
            slot.order = Order(claim, details, outlet, timeout, on_end, begin)
            self._need(slot)

    def cancel(self, id: UUID, reason: str) -> bool:
        """Ask a job to stop, and kill it after the patience; False if it is not here."""
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
        """End a job at once, with this outcome unless it ends by itself this very moment; False if it is not here."""
        with self.changed:
            slot = self._slot_of(id)
            if slot is None or slot.order is None:
                return False
            child = slot.condemn(outcome)
        if child is not None:
            child.kill()
        return True

    def close(self, grace: float = 0.0) -> None:
        """Take no more, give running jobs so many seconds, hand back the rest, and end all children. Blocks until done."""
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

    def _slot_of(self, id: UUID) -> Slot | None:
        found = (slot for slot in self._slots if slot.order is not None and slot.order.claim.id == id)
        return next(found, None)

    def _need(self, slot: Slot) -> None:
        if self._keeper.ident is None:
            self._keeper.start()
        slot.need()

    # What the slots ask ----------------------------------------------------------------------------------------------

    @property
    def closing(self) -> bool:
        """Whether no more jobs come."""
        return self._closing

    def resting(self) -> float:
        """Seconds until another child may be started."""
        return max(0.0, self._rest_until - self.clock.monotonic())

    def expect(self, at: float) -> None:
        """Something is due then; the lock is held. The keeper is only woken if it would come too late."""
        if at < self._keeps_until:
            self.changed.notify_all()

    def started(self) -> None:
        """A child is ready."""
        with self.changed:
            self._failures, self._complaint = 0, None
            self.changed.notify_all()

    def failed(self, why: str, trace: str | None = None) -> None:
        """A child could not start: the next ones wait, longer each time. Every slot may say so; it is logged once."""
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
                    self._keeps_until = -_NEVER  # it is awake: whoever changes something now need not wake it
            kill_all(overdue)

    def _overdue(self) -> list[Offspring]:
        now = self.clock.monotonic()
        found = [slot.condemn_overdue() for slot in self._slots if slot.due_at <= now]
        return [child for child in found if child is not None]
