"""The driver with threads of its own: they run steps while there is something to write or to claim.

There is no batching timer. Results that arrive during a step are written together by the next one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from tidemill.clock import Clock
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.planner import ClaimPlan
from tidemill.engine.exchange.recovery import Recovery
from tidemill.engine.exchange.shared_state import SharedState
from tidemill.engine.exchange.step_runner import StepRunner

_log = logging.getLogger("tidemill.engine")


class StepWork(NamedTuple):
    """The results to write and the claim to make in one step."""

    settled: list[Settled]
    plan: ClaimPlan | None


class ThreadDriver:
    """Threads that run steps for one worker."""

    def __init__(
        self,
        shared: SharedState,
        steps: StepRunner,
        recovery: Recovery,
        clock: Clock,
        *,
        threads: int,
        batch: int,
        poll: Callable[[], float],
    ) -> None:
        self._shared, self._machine, self._steps, self._recovery = shared, shared.machine, steps, recovery
        self._clock, self._batch, self._poll = clock, batch, poll
        # Number of waiting threads. ``knock`` reads it without the lock.
        self._waiting = 0
        self._threads = [
            threading.Thread(target=self._run, name=f"tidemill-pump-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def join(self, timeout: float) -> None:
        """Wait until the threads have ended, except the calling one."""
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout)

    def knock(self) -> None:
        """Wake a thread because the outbox has a new entry."""
        if self._waiting:
            with self._shared.changed:
                self._shared.changed.notify()

    def turn(self) -> bool:
        """Run one step on the calling thread if there is work for it. Returns whether there was."""
        with self._shared.changed:
            work = self._take()
        if work is None:
            return False
        try:
            self._steps.run(work.settled, work.plan, self._recovery.handle)
        finally:
            self._shared.end_step()
        return True

    def idle(self) -> float | None:
        """Return the seconds until the next turn without a notification; None: no turn is due. Requires the lock."""
        return self._machine.idle(self._poll())

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                self._steps.run(work.settled, work.plan, self._recovery.handle)
            except Exception:  # noqa: BLE001  (a thread that dies silently would stop the worker)
                _log.exception("unexpected error in the claim loop; continuing")
                self._shared.rest(1.0)
            finally:
                self._shared.end_step()

    def _next(self) -> StepWork | None:
        """Wait for work; None once the exchange is closed."""
        shared = self._shared
        with shared.changed:
            # Increment before checking the outbox, so that a thread that fills it after the check notifies us.
            self._waiting += 1
            try:
                while not shared.is_closed():
                    work = self._take()
                    if work is not None:
                        # A thread with work wakes the next one only if there is more: a needless wake-up is expensive.
                        if self._waiting > 1 and (shared.outbox or shared.planner.hot):
                            shared.changed.notify()
                        return work
                    shared.changed.wait(self.idle())
            finally:
                self._waiting -= 1
            return None

    def _take(self) -> StepWork | None:
        """Take what the machine allows, and count the step. Requires the lock."""
        now = self._clock.monotonic()
        share = self._machine.thread_turn(now)
        # Results first: they free the slots that the plan fills.
        settled = self._shared.outbox.take(self._batch, now) if share.results else []
        plan = self._machine.plan(share.claims, writes=bool(settled))
        if not settled and plan is None:
            return None
        self._machine.step_begins()
        return StepWork(settled, plan)
