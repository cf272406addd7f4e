"""A worker without threads, clock or store around the real ``ExchangeMachine``, to explore interleavings.

Every actor advances one stage at a time, in the order that a test chooses. Threads wait as on a condition variable: they
look again only when they are notified or when their wait ends. No poll is ever due, so a lost wake-up stays lost.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tidemill.engine.exchange.machine import (
    FLIGHTS,
    RESERVE,
    ExchangeMachine,
    ExchangeState,
    LaneLook,
    LoopRole,
    Share,
    Wakeup,
)
from tidemill.engine.exchange.planner import ClaimPlan, ExecutorLoad, Planner
from tidemill.engine.executors.kinds import LOOP, THREAD

BATCH = 3
NO_POLL = 1e9
READING = (LaneLook.READ, LaneLook.TRY_THEN_READ, LaneLook.WRITE_THEN_READ)


@dataclass(eq=False)
class Work:
    """A step: the results that it writes, and the claim that it makes."""

    results: list[int]
    plan: ClaimPlan | None
    look: LaneLook | None = None


@dataclass(eq=False)
class Actor:
    """A thread of the worker.

    Stages: ``look`` for work, ``wait``, ``step`` (has taken work), ``ask`` (the store has the request), ``alone`` (waits
    until it may recover), ``recover``.
    """

    name: str
    stage: str = "look"
    work: Work | None = None
    until: float | None = None


@dataclass(eq=False)
class World:
    """The worker, its store, and its history."""

    threads: int = 2
    now: float = 0.0
    made: int = 0  #: results so far
    written: set[int] = field(default_factory=set)
    known: int = 0  #: jobs in lanes that the worker knows
    unknown: int = 0  #: jobs in other lanes

    def __post_init__(self) -> None:
        kinds = {
            LOOP: ExecutorLoad(LOOP, 12, ("coroutine",)),
            THREAD: ExecutorLoad(THREAD, 3, ("function",)),
        }
        self.planner = Planner(kinds, buffer=0.0, batch=BATCH)
        self.machine = ExchangeMachine(self.planner)
        self.running = dict.fromkeys(kinds, 0)
        self.outbox: deque[tuple[int, str]] = deque()
        self.pool = [Actor(f"thread {number}") for number in range(self.threads)]
        self.loop = Actor("loop", "run")
        self.apart: list[Actor] = []
        self.flights: deque[Work] = deque()
        self.interrupted = self.asked = self.busy = False
        self.rests = 0  #: scheduled calls of ``loop_rests``

    # Events from outside -------------------------------------------------------------------------------------------------

    def announce(self, jobs: int, *, known: bool) -> None:
        """Jobs arrive in the store, and a wake-up in the worker."""
        self.known += jobs * known
        self.unknown += jobs * (not known)
        idle = self.loop.stage == "run" and not self.running[LOOP]
        if self.machine.ring(self.now, loop_idle=idle):
            self.interrupted = True
        self._notify()

    def end_job(self, kind: str) -> bool:
        """A handler ends."""
        if not self.running[kind] or (kind == LOOP and self.loop.stage not in ("run", "ask")):
            return False
        self.running[kind] -= 1
        self.outbox.append((self.made, kind))
        self.made += 1
        if kind == LOOP and self.machine.loop_wants():
            self.interrupted = True
        else:
            self._notify()
        return True

    def look_back(self) -> None:
        """A later comparison with the store is due."""
        self._recover_apart()

    def close(self) -> None:
        self.machine.close()
        self._notify_all()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for thread in self.pool:
            if thread.stage == "wait" and thread.until is not None and thread.until <= self.now:
                thread.stage = "look"

    def _notify(self) -> None:
        waiting = [thread for thread in self.pool if thread.stage == "wait"]
        if waiting:
            waiting[0].stage = "look"

    def _notify_all(self) -> None:
        for thread in self.pool:
            if thread.stage == "wait":
                thread.stage = "look"

    # Actors --------------------------------------------------------------------------------------------------------------

    @property
    def actors(self) -> list[Actor]:
        return [*self.pool, self.loop, *self.apart]

    def can_advance(self, actor: Actor) -> bool:
        if actor.stage == "run":
            return bool(self.interrupted or self.flights or self.rests)
        if actor.stage == "alone":
            return self.machine.alone or self.machine.closed
        return actor.stage not in ("wait", "end")

    def advance(self, actor: Actor, *, fails: bool = False, busy: bool = False) -> None:
        """Let an actor do what it does until it next waits, or releases the lock.

        A store call fails, or the store is busy and has done nothing.
        """
        self.busy = busy
        getattr(self, f"_{actor.stage}")(actor, fails or busy)

    def _look(self, thread: Actor, fails: bool) -> None:
        if self.machine.closed:
            thread.stage = "end"
            return
        work = self._take(self.machine.thread_turn(self.now), thread)
        if work is None:
            wait = self.machine.idle(NO_POLL)
            thread.stage, thread.until = "wait", None if wait is None else self.now + wait
            return
        self.machine.step_begins()
        thread.stage, thread.work = "step", work
        if self.outbox or self.planner.hot:
            self._notify()

    def _take(self, share: Share, by: Actor) -> Work | None:
        results: list[int] = []
        while share.results and self.outbox and len(results) < BATCH:
            result, kind = self.outbox.popleft()
            self.planner.kinds[kind].load -= 1
            results.append(result)
        before = self.machine.state
        plan = self.machine.plan(share.claims)
        if plan is not None:
            assert before is not ExchangeState.DRAINING, "a draining worker claims nothing"
            if by is not self.loop and self.machine.role is LoopRole.DRIVING:
                assert LOOP not in plan.kinds, "only the loop's thread claims for the loop while it drives"
        if not results and plan is None:
            return None
        assert before not in (ExchangeState.RECOVERING, ExchangeState.CLOSED), f"a step begins while {before}"
        return Work(results, plan)

    def _step(self, actor: Actor, fails: bool) -> None:
        work = actor.work
        assert work is not None
        if work.plan is not None:
            work.look = self.machine.claim_begins(must_look=False)
        actor.stage = "ask"

    def _ask(self, actor: Actor, fails: bool) -> None:
        """The store answers, or does not."""
        work = actor.work
        assert work is not None
        actor.work = None
        if fails:
            self._keep(work)
            self.machine.store_failed()
            if actor is not self.loop:
                if not self.busy and self.machine.recovery_begins():
                    actor.stage, actor.work = "alone", work
                    return
            else:
                self._recover_apart()
            self._claim_ended(work, None)
        else:
            self._answered(work)
        self._end_step(actor)

    def _end_step(self, actor: Actor) -> None:
        self.machine.step_ended()
        actor.stage = "look"
        if actor is self.loop:
            self._end_turn()
        elif actor in self.apart:
            actor.stage = "end"
            self._notify_all()

    def _end_turn(self) -> None:
        self.machine.loop_ends()
        self.loop.stage = "run"
        if self.asked:
            self.rests += 1
        else:
            self.interrupted = True  # it looks again before it runs the loop
        self.asked = False

    def _keep(self, work: Work) -> None:
        for result in reversed(work.results):
            self.outbox.appendleft((result, THREAD))
            self.planner.kinds[THREAD].load += 1  # ``_take`` subtracts it again
        work.results = []

    def _answered(self, work: Work) -> None:
        assert not self.written.intersection(work.results), "a result is written once"
        self.written.update(work.results)
        work.results = []
        self.machine.store_answered()
        if work.plan is None:
            return
        if work.look in READING:
            self.known, self.unknown = self.known + self.unknown, 0
        claimed = min(self.known, work.plan.limit)
        self.known -= claimed
        if work.look is LaneLook.TRY:
            self.machine.tried()
        for number in range(claimed):
            kind = work.plan.kinds[number % len(work.plan.kinds)]
            self.running[kind] += 1
            self.planner.kinds[kind].load += 1
        self._claim_ended(work, claimed)

    def _claim_ended(self, work: Work, claimed: int | None) -> None:
        if work.plan is not None:
            self.machine.claim_ended(work.plan, claimed)
            work.plan = None

    def _recover_apart(self) -> None:
        self.machine.step_begins()
        actor = Actor("recovery", "alone")
        if self.busy or not self.machine.recovery_begins():
            actor.stage = "leave"
        self.apart.append(actor)

    def _leave(self, actor: Actor, fails: bool) -> None:
        """The store was only busy, or another thread recovers already."""
        self._end_step(actor)

    def _alone(self, actor: Actor, fails: bool) -> None:
        actor.stage = "recover"

    def _recover(self, actor: Actor, fails: bool) -> None:
        if not self.machine.closed:
            others = [
                other for other in self.actors if other is not actor and other.stage in ("ask", "recover")
            ]
            assert not others, "one thread recovers alone"
            assert not self.flights, "one thread recovers alone"
            self.machine.store_answered()
        self.machine.recovery_ended()
        self._notify_all()
        if actor.work is not None:
            self._claim_ended(actor.work, None)
            actor.work = None
        self._end_step(actor)

    # The event loop ------------------------------------------------------------------------------------------------------

    def _run(self, loop: Actor, fails: bool) -> None:
        """The loop's thread: end the last request, then drive."""
        if self.rests and not self.interrupted:
            self.rests -= 1
            self.machine.loop_rests()
            self._notify()
            return
        self.interrupted = False
        turn = self.machine.loop_turn(self.now, wanted=self.machine.loop_wants())
        work = self._take(turn.share, loop)
        if work is None and not self.flights:
            if self.machine.loop_yields(turn):
                self._notify_all()
            return
        self.machine.loop_begins(took=work is not None)
        self.asked = turn.asked
        if work is None:
            self._land(fails)
        elif not turn.asked and work.plan and work.results and self.machine.wakeup is Wakeup.NONE:
            self.machine.flight_begins()
            self.flights.append(work)
            self._end_turn()
        else:
            loop.work, loop.stage = work, "step"

    def _land(self, fails: bool) -> None:
        work = self.flights.popleft()
        if fails:
            self._keep(work)
            self.machine.store_failed()
            self._recover_apart()
            self._claim_ended(work, None)
        else:
            self._answered(work)
        self.machine.flight_ended()
        self.machine.step_ended()
        self._end_turn()

    # Checks --------------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check what holds at any time."""
        machine = self.machine
        under_way = [
            actor for actor in self.actors if actor.stage in ("step", "ask", "alone", "recover", "leave")
        ]
        assert machine.steps == len(under_way) + len(self.flights)
        assert machine.flights == len(self.flights) <= FLIGHTS
        assert machine.role is not LoopRole.ASKED or not self.flights
        in_steps = [result for actor in self.actors if actor.work for result in actor.work.results]
        in_flight = [result for work in self.flights for result in work.results]
        queued = [result for result, _ in self.outbox]
        everything = sorted([*self.written, *queued, *in_steps, *in_flight])
        assert everything == list(range(self.made)), "no result is dropped or doubled"
        if machine.recovering and not machine.closed:
            assert any(actor.stage in ("alone", "recover") for actor in self.actors), "no thread recovers"

    def settle(self) -> None:
        """Let everything run to its end without further faults, wake-ups or polls."""
        for _ in range(5000):
            ready = [actor for actor in self.actors if self.can_advance(actor)]
            if ready:
                for actor in ready:
                    if self.can_advance(actor):
                        self.advance(actor)
                        self.check()
            elif not (self.end_job(LOOP) or self.end_job(THREAD)):
                if not any(thread.stage == "wait" and thread.until is not None for thread in self.pool):
                    break
                idle = self.machine.role is LoopRole.AWAY
                self.pass_time(RESERVE)
                if idle and all(
                    thread.until is None or thread.until > self.now + 1e6 for thread in self.pool
                ):
                    break
        self.check()
        assert not self.machine.steps
        assert not self.machine.recovering
        if self.machine.closed:
            return
        assert not self.outbox, "every result is written"
        if self.machine.claiming:
            assert (self.known, self.unknown) == (0, 0), "no wake-up is lost"
