"""A pump that steps on the event loop's own thread while jobs come in plenty.

Two threads that both have much to do only take the interpreter from each other, and what one made is cold for the other. So
while all that runs runs on the loop, its thread writes and claims as well, and turns the loop while it waits for the store. The
pump's own threads stand by: they take over when the loop does not turn, when there is little to do, and when there is trouble.

Where the store can be sent a step before the last one is answered, it is: the store does the next one while we take the answer to the
last and run what was claimed, and neither waits for the other. Every such flight counts as a step under way until it has landed.

And when nothing runs and somebody rings, the loop's thread goes for the job itself: it would have to be woken for it anyway. It
only tries where work was found before; to look around, and to write how the job ended, is left to the pump's own threads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from typing import Any, NamedTuple

from tidemill.domain.lanes import ClaimRequest
from tidemill.engine.ear import Ear
from tidemill.engine.finisher import Settled
from tidemill.engine.lanes import LOOP, LoopLane
from tidemill.engine.loop_ear import LoopEar
from tidemill.engine.plan import Plan
from tidemill.engine.pump import Pump
from tidemill.errors import StoreError
from tidemill.stores.ahead import StepsAhead

_log = logging.getLogger("tidemill.engine")

RESERVE = 0.1
"""Seconds after which the pump's own threads take over from a loop that does not turn."""


FLIGHTS = 2
"""Steps under way at most: one that the store is at, and one that it finds when it is done with that."""


class Flight(NamedTuple):
    """A step that was sent and not answered yet."""

    settled: list[Settled]
    plan: Plan
    request: ClaimRequest


class LoopPump(Pump):
    """The threads that talk to the store for one worker, and the loop's own."""

    def __init__(self, *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self._driven, self._drove_at = False, float("-inf")
        self._on_loop = False  # a step is under way there
        self._lane: LoopLane | None = None
        self._asked = self._trying = False  # the loop's thread is called for a job; it has come, and is at it
        self._hearing: LoopEar | None = None
        self._ahead: StepsAhead | None = None
        self._flights: deque[Flight] = deque()  # the loop's thread alone knows of them

    def attach(self, lane: LoopLane, ear: Ear | None = None) -> None:
        """This is the loop; what the ear hears is heard there."""
        self._lane = lane
        self._hearing = None if ear is None else LoopEar(ear)

    # The pump's own threads ------------------------------------------------------------------------------------------------

    def _look(self) -> tuple[list[Settled], Plan | None]:
        """Beside a loop that steps itself they claim only what does not run there, for what the loop has asked for waits until
        it turns again; and they write only what it has left lying.
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

    def _planned(self, **kinds: str) -> Plan | None:
        plan = self._planner.plan(**kinds) if self._claiming else None
        if plan is not None:
            self._planner.begin(plan)
        return plan

    def _call(self) -> None:
        """The loop's thread, if nothing runs and nobody else is at it; one of the pump's own stands by in any case."""
        lane, free = self._lane, not self._stepping and not self._asked
        if lane is not None and free and lane.idle and self._is_able() and not self._claimer.must_look:
            self._asked = self._driven = True
            self._drove_at = self._clock.monotonic()
            if lane.interrupt():
                return  # on the loop's own thread: it comes for sure
        super()._call()

    def _is_able(self) -> bool:
        """Whether the loop's thread can step at all."""
        return self._claiming and self._failed is None and self._store.cooperative

    # The loop's thread -----------------------------------------------------------------------------------------------------

    def wants(self) -> bool:
        """Whether the loop's thread shall step: the last claim came back full, and nothing runs anywhere else."""
        planner = self._planner
        return (
            planner.hot
            and self._is_able()
            and not any(kind.load for kind in planner.kinds.values() if kind.name != LOOP)
        )

    def drive(self) -> bool:
        """On the loop's thread, while the loop does not turn: one step, if it is wanted and there is anything to do, or the answer to
        one that is under way.
        """
        if self._hearing is not None and not self._hearing.opened:
            self._hearing.open(asyncio.get_event_loop())
        with self.changed:
            asked, self._asked = self._asked and self._is_able() and not self._flights, False
            able = (asked or self.wants()) and not self._recovering and not self._closed.is_set()
            settled: list[Settled] = []
            plan: Plan | None = None
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
        except Exception:  # noqa: BLE001  (whatever it is, the loop must not stop turning for it)
            _log.exception("the pump stumbled and goes on")
        finally:
            self._on_loop = False
            if asked and self._lane is not None:
                self._lane.soon(self._leave_rest)  # after the jobs that were found have begun
        return not asked

    def _step_here(self, settled: list[Settled], plan: Plan | None) -> None:
        try:
            self._step(settled, plan, self._leave_trouble)
        finally:
            self._stepped()

    def leave(self) -> None:
        """On the loop's thread: the loop ends."""
        while self._flights:
            self._land()
        if self._hearing is not None:
            self._hearing.close()

    # Flights ---------------------------------------------------------------------------------------------------------------

    def _launch(self, settled: list[Settled], plan: Plan) -> bool:
        """Send this step ahead, if it is as simple as most are and there is nothing to look at first."""
        claimer = self._claimer
        if (
            not settled
            or self._rung
            or self._tried
            or claimer.counts
            or claimer.must_look
            or claimer.is_stale()
        ):
            return False
        try:
            self._ahead = ahead = self._ahead or self._store.steps_ahead()
            requests = [] if ahead is None else list(claimer.requests(plan))
            if ahead is None or len(requests) != 1 or not ahead.send(self._finishes(settled), requests[0]):
                return False
        except Exception as error:  # noqa: BLE001  (whoever steps without it finds out)
            _log.debug("a step could not be sent ahead: %s", error)
            return False
        self._flights.append(Flight(settled, plan, requests[0]))
        return True

    def _await_landing(self, *, hurry: bool) -> None:
        """Take the answer to the oldest step; or turn the loop until it is there, or until another can be sent."""
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

    def _talk_and_claim(self, settled: list[Settled], plan: Plan) -> int:
        # The pump's own threads claim nothing while the loop's tries; and nobody does before it is known what has changed.
        if not self._trying or self._claimer.must_look:
            return super()._talk_and_claim(settled, plan)
        claimed = self._talk_about(settled, plan, self._claimer.requests(plan, remembered=True))
        self._tried = True  # it stays rung
        return claimed

    def _leave_rest(self) -> None:
        """The loop's thread has tried; one of the pump's own looks around."""
        with self.changed:
            self._trying = False
            if not self._on_loop:
                self._driven = False
            self.changed.notify()

    def _leave_trouble(self, error: StoreError) -> None:
        """Not on the loop: mending takes time, and coroutines go on meanwhile."""
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
