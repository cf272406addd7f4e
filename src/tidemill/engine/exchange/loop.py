"""The driver on the event loop's own thread, used while many jobs arrive.

Two busy threads contend for the GIL and evict each other's caches. So while all running jobs are on the loop, the
loop's thread also writes results and claims jobs, and it runs the loop while it waits for the store. The threads of
``ThreadDriver`` are the fallback: they take over when the loop is blocked, when there is little to do, and after store
errors.

If the store supports it, the loop's thread sends a step before the previous one is answered. The store then works on
the next step while this process handles the previous answer and runs the claimed jobs. Each such step, called a flight,
counts as a step under way until its answer has arrived.

When nothing runs and a wake-up arrives, the loop's thread claims the job itself, because it would have to be woken
anyway. It only tries lanes in which it found work before. A thread of ``ThreadDriver`` reads the lanes and writes the
job's result.
"""

from __future__ import annotations

import logging
from collections import deque

from tidemill.clock import Clock
from tidemill.engine.exchange.finisher import Settled
from tidemill.engine.exchange.machine import FLIGHTS, LoopTurn
from tidemill.engine.exchange.planner import ClaimPlan
from tidemill.engine.exchange.recovery import Recovery
from tidemill.engine.exchange.shared_state import SharedState
from tidemill.engine.exchange.sources import Claimer
from tidemill.engine.exchange.step_runner import StepInFlight, StepRunner
from tidemill.engine.executors.local import LoopExecutor
from tidemill.engine.listener import WakeupListener
from tidemill.engine.loop_listener import LoopListener
from tidemill.stores.base import Store
from tidemill.stores.step_pipeline import StepPipeline

_log = logging.getLogger("tidemill.engine")


class LoopDriver:
    """Runs steps on the event loop's thread, for which it is the ``LoopStepper``."""

    def __init__(
        self,
        shared: SharedState,
        steps: StepRunner,
        recovery: Recovery,
        store: Store,
        clock: Clock,
        claimer: Claimer,
        batch: int,
    ) -> None:
        self._shared, self._machine, self._steps, self._recovery = shared, shared.machine, steps, recovery
        self._store, self._clock, self._claimer, self._batch = store, clock, claimer, batch
        self._lane: LoopExecutor | None = None
        self._hearing: LoopListener | None = None
        self._ahead: StepPipeline | None = None
        self._flights: deque[StepInFlight] = deque()  # used only by the loop's thread

    def attach(self, lane: LoopExecutor, listener: WakeupListener | None = None) -> None:
        """Attach the event loop. If a listener is given, its wake-ups are received on the loop."""
        self._lane = lane
        self._hearing = None if listener is None else LoopListener(listener)

    # Any thread ----------------------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Whether the loop has nothing to run, and its thread could claim in lanes that it knows."""
        lane = self._lane
        return lane is not None and lane.idle and self._store.cooperative and not self._claimer.must_look

    def interrupt(self) -> bool:
        """Stop the loop so that its thread calls ``drive``. Returns whether this is that thread."""
        return self._lane is not None and self._lane.interrupt()

    # The loop's thread ---------------------------------------------------------------------------------------------------

    def wants(self) -> bool:
        """Whether the loop's thread should run steps."""
        return self._machine.loop_wants() and self._store.cooperative

    def drive(self) -> bool:
        """Run one step if it is needed and there is work, or handle the answer to a step under way.

        Called on the loop's thread while the loop is not running. Returns whether to call it again before the loop runs.
        """
        if self._hearing is not None and not self._hearing.opened and self._lane is not None:
            self._hearing.open(self._lane.loop)
        machine = self._machine
        with self._shared.changed:
            now = self._clock.monotonic()
            turn = machine.loop_turn(now, wanted=self.wants())
            settled = self._shared.outbox.take(self._batch, now) if turn.share.results else []
            plan = machine.plan(turn.share.claims, writes=bool(settled))
            took = bool(settled) or plan is not None
            if not took and not machine.flights:
                if machine.loop_yields(turn):
                    self._shared.changed.notify_all()
                return False
            machine.loop_begins(took=took)
        try:
            if took:
                self._step(turn, settled, plan)
            else:
                self._await_landing(hurry=turn.hurry)
        except Exception:  # noqa: BLE001  (no error may stop the event loop)
            _log.exception("unexpected error in the claim loop; continuing")
        finally:
            with self._shared.changed:
                machine.loop_ends()
            if turn.asked and self._lane is not None:
                # After the claimed jobs have begun.
                self._lane.soon(self._leave_rest)
        return not turn.asked

    def _step(self, turn: LoopTurn, settled: list[Settled], plan: ClaimPlan | None) -> None:
        if plan is not None and not turn.asked and self._launch(settled, plan):
            return
        try:
            self._steps.run(settled, plan, self._recovery.handle_apart)
        finally:
            self._shared.end_step()

    def leave(self) -> None:
        """Receive all outstanding answers before the loop ends. Called on the loop's thread."""
        while self._flights:
            self._land()
        if self._hearing is not None:
            self._hearing.close()

    def _leave_rest(self) -> None:
        """Let a thread read the lanes after the loop's thread has tried."""
        with self._shared.changed:
            self._machine.loop_rests()
            self._shared.changed.notify()

    # Flights -------------------------------------------------------------------------------------------------------------

    def _launch(self, settled: list[Settled], plan: ClaimPlan) -> bool:
        """Send this step ahead if it is a simple one and nothing has to be read first; return whether it was sent."""
        if not settled or self._has_linked(settled) or not self._steps.may_send_ahead():
            return False
        try:
            self._ahead = ahead = self._ahead or self._store.steps_ahead()
            flight = None if ahead is None else self._steps.send_ahead(ahead, settled, plan)
        except Exception as error:  # noqa: BLE001  (the ordinary step that follows reports the error)
            _log.debug("cannot pipeline a store call: %s", error)
            return False
        if flight is None:
            return False
        self._flights.append(flight)
        with self._shared.changed:
            self._machine.flight_begins()
        return True

    def _has_linked(self, settled: list[Settled]) -> bool:
        """Whether one of these jobs belongs to a flow. The store answers such a step before it can plan the next one."""
        linked = self._shared.planner.linked
        return bool(linked) and any(item.claim.id.int in linked for item in settled)

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
        flight = self._flights.popleft()
        assert self._ahead is not None
        try:
            self._steps.receive(flight, self._ahead.receive, self._recovery.handle_apart)
        finally:
            with self._shared.changed:
                self._machine.flight_ended()
                self._shared.end_step()
