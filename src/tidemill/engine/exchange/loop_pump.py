"""Store exchange on the event loop's own thread, used while many jobs arrive.

Two busy threads contend for the GIL and evict each other's caches. So while all running jobs are on the loop, the
loop's thread also writes results and claims jobs, and it runs the loop while it waits for the store. The pump's own
threads are the fallback: they take over when the loop is blocked, when there is little to do, and after store errors.

If the store supports it, the loop's thread sends a step before the previous one is answered. The store then works on
the next step while this process handles the previous answer and runs the claimed jobs. Each such step, called a flight,
counts as a step under way until its answer has arrived.

When nothing runs and a wake-up arrives, the loop's thread claims the job itself, because it would have to be woken
anyway. It only tries lanes in which it found work before. The pump's own threads read the lanes and write the job's
result.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any, NamedTuple

from tidemill.domain.lanes import ClaimRequest
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.planner import ClaimPlan
from tidemill.engine.exchange.pump import Pump
from tidemill.engine.executors.kinds import LOOP
from tidemill.engine.executors.local import LoopExecutor
from tidemill.engine.listener import WakeupListener
from tidemill.engine.loop_listener import LoopListener
from tidemill.errors import StoreError
from tidemill.stores.step_pipeline import StepPipeline

_log = logging.getLogger("tidemill.engine")

RESERVE = 0.1
"""Seconds after which the pump's own threads take over from a blocked loop."""


FLIGHTS = 2
"""Maximum number of steps under way: one that the store works on, and one that is queued behind it."""


class StepInFlight(NamedTuple):
    """A step that was sent and is not answered yet."""

    settled: list[Settled]
    plan: ClaimPlan
    request: ClaimRequest


class LoopPump(Pump):
    """The threads that exchange jobs with the store for one worker, including the event loop's thread."""

    def __init__(self, *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self._driven, self._drove_at = False, float("-inf")
        self._on_loop = False  # a step is under way on the loop's thread
        self._lane: LoopExecutor | None = None
        # Asked: the loop's thread was asked to claim a job. Trying: it is claiming.
        self._asked = self._trying = False
        self._hearing: LoopListener | None = None
        self._ahead: StepPipeline | None = None
        self._flights: deque[StepInFlight] = deque()  # used only by the loop's thread

    def attach(self, lane: LoopExecutor, ear: WakeupListener | None = None) -> None:
        """Attach the event loop. If a listener is given, its wake-ups are received on the loop."""
        self._lane = lane
        self._hearing = None if ear is None else LoopListener(ear)

    # The pump's own threads ------------------------------------------------------------------------------------------------

    def _look(self) -> tuple[list[Settled], ClaimPlan | None]:
        """Select the work for the pump's own threads.

        While the loop's thread steps, they claim only jobs that do not run on the loop, because the loop's own claims
        wait until it turns again. They write only results that the loop's thread has left for too long.
        """
        now = self._clock.monotonic()
        stale = now - self._drove_at >= RESERVE
        if stale and not self._on_loop:
            self._driven = self._asked = self._trying = False
        if not self._driven:
            return super()._look()
        if self._recovering:
            return [], None
        if self._asked or self._trying:
            return self._outbox.take(self._batch, now), None
        return self._outbox.take(self._batch, now) if stale else [], self._planned(without=LOOP)

    def _idle(self) -> float | None:
        return RESERVE if self._driven else super()._idle()

    def _planned(self, **kinds: str) -> ClaimPlan | None:
        plan = self._planner.plan(**kinds) if self._claiming else None
        if plan is not None:
            self._planner.begin(plan)
        return plan

    def _call(self) -> None:
        """Ask the loop's thread to claim if nothing runs and no thread is claiming.

        One of the pump's own threads is woken as a fallback.
        """
        lane, free = self._lane, not self._stepping and not self._asked
        if lane is not None and free and lane.idle and self._is_able() and not self._claimer.must_look:
            self._asked = self._driven = True
            self._drove_at = self._clock.monotonic()
            if lane.interrupt():
                # This is the loop's own thread, so it will certainly run the step.
                return
        super()._call()

    def _is_able(self) -> bool:
        """Whether the loop's thread can run steps at all."""
        return self._claiming and self._failed is None and self._store.cooperative

    # The loop's thread -----------------------------------------------------------------------------------------------------

    def wants(self) -> bool:
        """Whether the loop's thread should run steps: the last claim returned a full batch, and nothing runs elsewhere."""
        planner = self._planner
        return (
            planner.hot
            and self._is_able()
            and not any(kind.load for kind in planner.kinds.values() if kind.name != LOOP)
        )

    def drive(self) -> bool:
        """Run one step if it is needed and there is work, or handle the answer to a step under way.

        Called on the loop's thread while the loop is not running.
        """
        if self._hearing is not None and not self._hearing.opened and self._lane is not None:
            self._hearing.open(self._lane.loop)
        with self.changed:
            asked, self._asked = self._asked and self._is_able() and not self._flights, False
            able = (asked or self.wants()) and not self._recovering and not self._closed.is_set()
            settled: list[Settled] = []
            plan: ClaimPlan | None = None
            if able and len(self._flights) < FLIGHTS:
                self._driven, self._drove_at = True, self._clock.monotonic()
                settled = [] if asked else self._outbox.take(self._batch, self._drove_at)
                plan = self._planned() if asked else self._planned(only=LOOP)
            steps = bool(settled) or plan is not None
            if not steps and not self._flights:
                if not able and self._driven and not self._trying:
                    self._driven = False
                    self.changed.notify_all()
                return False
            self._trying = asked
            self._stepping += steps
            self._on_loop = True
        try:
            if not steps:
                self._await_landing(hurry=not able)
            elif asked or plan is None or not self._launch(settled, plan):
                self._step_here(settled, plan)
        except Exception:  # noqa: BLE001  (no error may stop the event loop)
            _log.exception("unexpected error in the claim loop; continuing")
        finally:
            self._on_loop = False
            if asked and self._lane is not None:
                # After the claimed jobs have begun.
                self._lane.soon(self._leave_rest)
        return not asked

    def _step_here(self, settled: list[Settled], plan: ClaimPlan | None) -> None:
        try:
            self._step(settled, plan, self._leave_trouble)
        finally:
            self._stepped()

    def leave(self) -> None:
        """Receive all outstanding answers before the loop ends. Called on the loop's thread."""
        while self._flights:
            self._land()
        if self._hearing is not None:
            self._hearing.close()

    # Flights ---------------------------------------------------------------------------------------------------------------

    def _launch(self, settled: list[Settled], plan: ClaimPlan) -> bool:
        """Send this step ahead if it is a simple one and nothing has to be read first; return whether it was sent."""
        claimer = self._claimer
        if (
            not settled
            or self._rung
            or self._tried
            or claimer.counts
            or claimer.must_look
            or claimer.is_stale()
            or not self._may_claim()
        ):
            return False
        try:
            self._ahead = ahead = self._ahead or self._store.steps_ahead()
            requests = [] if ahead is None else list(claimer.requests(plan))
            if ahead is None or len(requests) != 1 or not ahead.send(self._finishes(settled), requests[0]):
                return False
        except Exception as error:  # noqa: BLE001  (the ordinary step that follows reports the error)
            _log.debug("cannot pipeline a store call: %s", error)
            return False
        self._flights.append(StepInFlight(settled, plan, requests[0]))
        return True

    def _await_landing(self, *, hurry: bool) -> None:
        """Handle the answer to the oldest step, or run the loop until it arrives or another step can be sent."""
        ahead, lane = self._ahead, self._lane
        assert ahead is not None
        assert lane is not None
        if not hurry and not ahead.answered():
            lane.turn_until(ahead.file, alert=len(self._flights) < FLIGHTS)
        if hurry or ahead.answered():
            self._land()

    def _land(self) -> None:
        settled, plan, request = self._flights.popleft()
        assert self._ahead is not None
        receive = self._ahead.receive
        try:
            self._act(
                settled,
                plan,
                lambda: len(self._talk(settled, plan, request, receive)),
                self._leave_trouble,
            )
        finally:
            self._stepped()

    def _talk_and_claim(self, settled: list[Settled], plan: ClaimPlan) -> int:
        # The pump's own threads claim nothing while the loop's thread does. No thread claims before changed settings
        # are read.
        if not self._trying or self._claimer.must_look:
            return super()._talk_and_claim(settled, plan)
        claimed = self._talk_about(settled, plan, self._claimer.requests(plan, remembered=True))
        self._tried = True  # the wake-up stays pending
        return claimed

    def _leave_rest(self) -> None:
        """Let one of the pump's own threads read the lanes after the loop's thread has tried."""
        with self.changed:
            self._trying = False
            if not self._on_loop:
                self._driven = False
            self.changed.notify()

    def _leave_trouble(self, error: StoreError) -> None:
        """Start a thread for the recovery, which takes time, so that coroutines on the loop keep running."""
        self._note(error)
        with self.changed:
            self._stepping += 1
        threading.Thread(target=self._mend, args=(error,), name="tidemill-mend", daemon=True).start()

    def _mend(self, error: StoreError) -> None:
        try:
            self._trouble(error)
        finally:
            self._stepped()
            with self.changed:
                self.changed.notify_all()
