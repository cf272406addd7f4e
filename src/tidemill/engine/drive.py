"""A pump that steps on the event loop's own thread while jobs come in plenty.

Two threads that both have much to do only take the interpreter from each other, and what one made is cold for the other. So
while all that runs runs on the loop, its thread writes and claims as well, and turns the loop while it waits for the store. The
pump's own threads stand by: they take over when the loop does not turn, when there is little to do, and when there is trouble.

And when nothing runs and somebody rings, the loop's thread goes for the job itself: it would have to be woken for it anyway. It
only tries where work was found before; to look around, and to write how the job ended, is left to the pump's own threads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

from tidemill.engine.ear import Ear
from tidemill.engine.finisher import Settled
from tidemill.engine.lanes import LOOP, LoopLane
from tidemill.engine.loop_ear import LoopEar
from tidemill.engine.plan import Plan
from tidemill.engine.pump import Pump
from tidemill.errors import StoreError

_log = logging.getLogger("tidemill.engine")

RESERVE = 0.1
"""Seconds after which the pump's own threads take over from a loop that does not turn."""


class LoopPump(Pump):
    """The threads that talk to the store for one worker, and the loop's own."""

    def __init__(self, *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self._driven, self._drove_at = False, float("-inf")
        self._on_loop = False  # a step is under way there
        self._lane: LoopLane | None = None
        self._asked = self._trying = False  # the loop's thread is called for a job; it has come, and is at it
        self._hearing: LoopEar | None = None

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
        """On the loop's thread, while the loop does not turn: one step, if it is wanted and there is anything to do."""
        if self._hearing is not None and not self._hearing.opened:
            self._hearing.open(asyncio.get_event_loop())
        with self.changed:
            asked, self._asked = self._asked and self._is_able(), False
            if not (asked or self.wants()) or self._recovering or self._closed.is_set():
                if self._driven and not self._trying:
                    self._driven = False
                    self.changed.notify_all()
                return False
            self._driven, self._drove_at = True, self._clock.monotonic()
            settled = [] if asked else self._outbox.take(self._batch, self._drove_at)
            plan = self._planned() if asked else self._planned(only=LOOP)
            if not settled and plan is None:
                return False
            self._trying = asked
            self._stepping += 1
            self._on_loop = True
        try:
            self._step(settled, plan, self._leave_trouble)
        except Exception:  # noqa: BLE001  (whatever it is, the loop must not stop turning for it)
            _log.exception("the pump stumbled and goes on")
        finally:
            self._on_loop = False
            self._stepped()
            if asked and self._lane is not None:
                self._lane.soon(self._leave_rest)  # after the jobs that were found have begun
        return not asked

    def leave(self) -> None:
        """On the loop's thread: the loop ends."""
        if self._hearing is not None:
            self._hearing.close()

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
