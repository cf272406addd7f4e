"""Tests of the exchange's state machine: examples, and properties over interleavings of threads, loop and failures."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.engine.machine_world import World

from tidemill.engine.exchange.machine import (
    FLIGHTS,
    LONGEST_PAUSE,
    NO_SHARE,
    RESERVE,
    ClaimScope,
    ExchangeMachine,
    ExchangeState,
    LaneLook,
    LoopRole,
    Share,
    Wakeup,
)
from tidemill.engine.exchange.planner import ExecutorLoad, Planner
from tidemill.engine.executors.kinds import LOOP, THREAD

S = ExchangeState


def a_machine(*, started: bool = True) -> ExchangeMachine:
    kinds = {LOOP: ExecutorLoad(LOOP, 10, ("a",)), THREAD: ExecutorLoad(THREAD, 10, ("b",))}
    machine = ExchangeMachine(Planner(kinds, buffer=0.0, batch=5))
    if started:
        machine.start()
    return machine


def claim(machine: ExchangeMachine, found: int | None, scope: ClaimScope = ClaimScope.ALL) -> LaneLook:
    """One step of a thread that claims."""
    plan = machine.plan(scope)
    assert plan is not None
    machine.step_begins()
    look = machine.claim_begins(must_look=False)
    machine.claim_ended(plan, found)
    machine.step_ended()
    return look


# ---------------------------------------------------------------------------------------------------- examples


def test_the_states_of_a_worker_from_start_to_end() -> None:
    machine = a_machine(started=False)
    seen = [machine.state]
    machine.start()
    seen.append(machine.state)
    machine.step_begins()
    seen.append(machine.state)
    machine.step_ended()
    claim(machine, 0)
    seen.append(machine.state)
    machine.ring(0.0, loop_idle=False)
    seen.append(machine.state)
    machine.step_begins()
    assert machine.recovery_begins()
    seen.append(machine.state)
    machine.recovery_ended()
    machine.pause()
    seen.append(machine.state)
    machine.close()
    seen.append(machine.state)
    assert seen == [
        S.DRAINING, S.POLLING, S.STEPPING, S.IDLE, S.POLLING, S.RECOVERING, S.DRAINING, S.CLOSED,
    ]  # fmt: skip


def test_a_wake_up_is_used_by_one_claim_and_stays_pending_after_a_failure() -> None:
    machine = a_machine()
    looks = [claim(machine, None), claim(machine, 5), claim(machine, 0)]
    assert looks == [LaneLook.TRY_THEN_READ, LaneLook.TRY_THEN_READ, LaneLook.KNOWN]
    assert machine.wakeup is Wakeup.NONE


def test_a_wake_up_during_a_claim_stays_pending() -> None:
    machine = a_machine()
    plan = machine.plan(ClaimScope.ALL)
    assert plan is not None
    machine.claim_begins(must_look=False)
    machine.ring(0.0, loop_idle=False)
    machine.claim_ended(plan, 0)
    assert machine.wants_claim


def test_changed_pauses_are_read_before_any_lane_is_tried() -> None:
    assert a_machine().claim_begins(must_look=True) is LaneLook.READ


def test_a_due_poll_is_a_wake_up() -> None:
    machine = a_machine()
    claim(machine, 0)
    seen = [(machine.idle(poll_in), machine.state) for poll_in in (3.0, 0.0)]
    assert seen == [(3.0, S.IDLE), (0.0, S.POLLING)]


def test_a_worker_without_free_slots_does_not_poll_in_a_busy_loop() -> None:
    machine = a_machine()
    claim(machine, 0)
    for kind in machine._planner.kinds.values():
        kind.load = kind.slots
    assert machine.idle(0.0) == LONGEST_PAUSE


def test_a_draining_worker_writes_results_and_claims_nothing() -> None:
    machine = a_machine()
    machine.pause()
    share = machine.thread_turn(0.0)
    assert share.results
    assert machine.plan(share.claims) is None
    assert machine.idle(0.0) is None


def test_an_idle_loop_is_asked_once_and_its_claim_leaves_the_wake_up_to_the_threads() -> None:
    machine = a_machine()
    claim(machine, 0)
    assert machine.ring(1.0, loop_idle=True)
    assert not machine.ring(1.0, loop_idle=True)
    assert machine.thread_turn(1.0) == Share(True, ClaimScope.NOTHING)
    turn = machine.loop_turn(1.0, wanted=False)
    assert (turn.asked, turn.share) == (True, Share(False, ClaimScope.ALL))
    plan = machine.plan(turn.share.claims)
    assert plan is not None
    machine.loop_begins(took=True)
    assert machine.claim_begins(must_look=False) is LaneLook.TRY
    machine.tried()
    machine.claim_ended(plan, 1)
    machine.step_ended()
    machine.loop_ends()
    machine.loop_rests()
    assert machine.thread_turn(1.0) == Share(True, ClaimScope.ALL)
    assert claim(machine, 0) is LaneLook.WRITE_THEN_READ


def test_threads_leave_the_loops_work_alone_until_the_loop_is_blocked() -> None:
    machine = a_machine()
    turn = machine.loop_turn(1.0, wanted=True)
    assert turn.share == Share(True, ClaimScope.LOOP_ONLY)
    assert machine.thread_turn(1.0) == Share(False, ClaimScope.WITHOUT_LOOP)
    assert machine.thread_turn(1.0 + RESERVE) == Share(True, ClaimScope.ALL)
    assert machine.role is LoopRole.AWAY


def test_threads_write_but_do_not_claim_for_a_loop_that_waits_for_the_store_for_long() -> None:
    machine = a_machine()
    machine.loop_turn(1.0, wanted=True)
    machine.loop_begins(took=True)
    assert machine.thread_turn(9.0) == Share(True, ClaimScope.WITHOUT_LOOP)


def test_a_loop_without_load_gives_its_work_back_and_the_threads_are_woken() -> None:
    machine = a_machine()
    machine.loop_turn(1.0, wanted=True)
    turn = machine.loop_turn(1.0, wanted=False)
    assert machine.loop_yields(turn)
    assert machine.role is LoopRole.AWAY
    assert not machine.loop_yields(turn)


def test_no_more_than_the_allowed_steps_are_pipelined() -> None:
    machine = a_machine()
    for _ in range(FLIGHTS):
        assert machine.loop_turn(1.0, wanted=True).share.results
        machine.loop_begins(took=True)
        machine.flight_begins()
        machine.loop_ends()
    turn = machine.loop_turn(1.0, wanted=True)
    assert turn.share == NO_SHARE
    assert not turn.hurry
    assert machine.loop_turn(1.0, wanted=False).hurry


def test_one_thread_recovers_and_no_step_begins() -> None:
    machine = a_machine()
    claim(machine, 0)
    machine.step_begins()
    machine.step_begins()
    assert machine.recovery_begins()
    assert not machine.recovery_begins()
    alone = [machine.alone]
    machine.step_ended()
    alone.append(machine.alone)
    assert alone == [False, True]
    assert machine.thread_turn(0.0) == NO_SHARE
    assert machine.loop_turn(0.0, wanted=True).share == NO_SHARE
    assert machine.idle(0.0) is None
    machine.recovery_ended()
    assert machine.thread_turn(0.0) == Share(True, ClaimScope.ALL)
    assert machine.wants_claim


def test_the_loop_is_not_asked_while_the_store_fails() -> None:
    machine = a_machine()
    assert machine.store_failed()
    assert not machine.store_failed()
    assert not machine.ring(0.0, loop_idle=True)
    assert machine.store_answered()
    assert not machine.store_answered()
    assert machine.ring(0.0, loop_idle=True)


# -------------------------------------------------------------------------------------------------- properties


class Interleavings(RuleBasedStateMachine):
    """Any order of arrivals, ends, failures, pauses and turns of the threads."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.machine.start()

    @rule(jobs=st.integers(0, 9), known=st.booleans())
    def announce(self, jobs: int, known: bool) -> None:
        self.world.announce(jobs, known=known)

    @rule(kind=st.sampled_from([LOOP, THREAD]), number=st.integers(1, 6))
    def end_jobs(self, kind: str, number: int) -> None:
        for _ in range(number):
            self.world.end_job(kind)

    @rule(chosen=st.lists(st.integers(0, 4), min_size=1, max_size=12), fault=st.integers(0, 11))
    def advance(self, chosen: list[int], fault: int) -> None:
        for number in chosen:
            ready = [actor for actor in self.world.actors if self.world.can_advance(actor)]
            if ready:
                self.world.advance(ready[number % len(ready)], fails=fault == 0, busy=fault == 1)
                self.world.check()

    @rule(drawn=st.integers(0, 4))
    def look_back(self, drawn: int) -> None:
        if drawn == 0:
            self.world.look_back()

    @rule(seconds=st.sampled_from([0.01, RESERVE / 2, RESERVE, 1.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(drawn=st.integers(0, 9))
    def pause(self, drawn: int) -> None:
        if drawn == 0:
            self.world.machine.pause()

    @precondition(lambda self: not self.world.machine.closed)
    @rule(drawn=st.integers(0, 19))
    def close(self, drawn: int) -> None:
        if drawn == 0:
            self.world.close()

    @invariant()
    def holds(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.settle()


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
