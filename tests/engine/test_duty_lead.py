"""Tests of leader election among duty loops, on a manual clock."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from tests.engine.cluster_kit import SECOND, Line, a_worker, claim, enqueue, the_jobs
from tests.engine.duty_kit import Deaf, Notebook, Yard, every

from tidemill.client.documents import duties_of
from tidemill.clock import ManualClock
from tidemill.domain.cluster import LEASE_BEAT, Coordination
from tidemill.domain.decide import DEFAULT_POLICY
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import JobState
from tidemill.engine.duties import Promote, Reclaim, TickDuty, usual_duties
from tidemill.engine.duty import Done, Duties, Duty
from tidemill.errors import BadSettings
from tidemill.ids import new_id


@pytest.fixture
def yard() -> Iterator[Yard]:
    yard = Yard()
    yield yard
    yard.close()


def test_one_of_several_loops_leads_and_its_lease_records_its_results(yard: Yard) -> None:
    books = [Notebook(yard.clock, lambda: Done(3)) for _ in range(5)]
    for book in books:
        yard.loop(every(5, book))
    yard.pass_time(33)
    assert [loop.leading for loop in yard.loops] == [True, False, False, False, False]
    assert [len(book.times) for book in books] == [7, 0, 0, 0, 0]
    (lease,) = yard.memory.leases()
    assert (lease.name, lease.term) == ("duties", 1)
    facts = duties_of(lease)["work"]
    assert facts["items"] == 21
    assert datetime.fromisoformat(facts["last_tick"]).tzinfo is not None
    assert facts["errors"] == 0


def leaders(yard: Yard, seconds: int) -> list[int]:
    """Each change of the leader during this time; -1 while there is none."""
    seen: list[int] = []
    for _ in range(seconds):
        yard.pass_time(1)
        now = next((number for number, loop in enumerate(yard.loops) if loop.leading), -1)
        if not seen or seen[-1] != now:
            seen.append(now)
    return seen


def test_a_leader_with_rotation_passes_the_lease_on_and_keeps_no_lead_for_longer(yard: Yard) -> None:
    for _ in range(3):
        listener = Deaf(yard.memory, yard.clock)
        yard.loop(every(5, Done), listener=listener, lease_rotation=timedelta(minutes=1))
    turns = [leader for leader in leaders(yard, 400) if leader >= 0]
    assert len(turns) >= 6
    assert all(before != after for before, after in pairwise(turns))


def test_a_worker_that_is_alone_leads_again_after_its_rotation(yard: Yard) -> None:
    yard.loop(every(5, Done), lease_rotation=timedelta(minutes=1))
    assert leaders(yard, 200) == [0, -1, 0, -1, 0, -1, 0]
    assert yard.memory.leases()[0].term == 4


@pytest.mark.parametrize("hours", [-6, 0, 6])
def test_a_dead_leader_is_replaced_in_10_s_or_20_s_if_clocks_disagree(yard: Yard, hours: int) -> None:
    class Wrong(ManualClock):
        def now(self) -> datetime:
            return yard.clock.now() + timedelta(hours=hours)

        def monotonic(self) -> float:
            return yard.clock.monotonic()

    for seed in range(20):
        listeners = [Deaf(yard.memory, yard.clock) for _ in range(3)]
        dead = yard.loop(Promote(yard.memory, tick=TickDuty(yard.clock)).duty(), listener=listeners[0])
        others = [
            Duties(
                yard.memory, Wrong(), new_id(), [], random=Random(seed * 10 + i), listener=listeners[1 + i]
            )
            for i in range(2)
        ]
        listener = yard.memory.listen()
        lifetime = 10 + seed * 0.37
        until = yard.clock.monotonic() + lifetime
        while yard.clock.monotonic() < until:
            yard.pass_time(0.1, dead, *others)
            for deaf in listeners:
                deaf.tell(listener.wait(0))
        assert dead.leading
        died = yard.clock.monotonic()
        while not any(other.leading for other in others):
            yard.pass_time(0.05, *others)
        assert yard.clock.monotonic() - died <= (10 if hours == 0 else 20)
        listener.close()
        for other in others:
            other.close()
        yard.loops.clear()


def test_ten_idle_workers_make_hardly_more_calls_than_one(yard: Yard) -> None:
    listener_line = yard.memory.listen()
    loops: list[tuple[Duties, Line, Deaf]] = []
    for _ in range(10):
        line, deaf = Line(yard.memory), Deaf(yard.memory, yard.clock)
        duties = usual_duties(line.store, yard.clock, lambda claim, details: DEFAULT_POLICY, Random(1))
        loops.append((yard.loop(*duties, line=line, listener=deaf), line, deaf))
    for _ in range(1200):
        yard.pass_time(0.1)
        heard = listener_line.wait(0)
        for _, _, deaf in loops:
            if heard:
                deaf.tell(heard)
    listener_line.close()
    # Promotion and tick share one transaction.
    calls = [len(line.calls) - 2 * line.calls.count("transaction") for _, line, _ in loops]
    # Receivers of signals and events are searched every five seconds, and four questions about flows every ten.
    assert calls[0] / 120 <= 2.3
    assert sum(calls[1:]) <= 9 * 2  # one read at the start, before the first tick


def test_followers_without_ticks_read_only_when_the_lease_would_expire(yard: Yard) -> None:
    yard.loop(every(5, Done))
    line = Line(yard.memory)
    yard.loop(every(5, Done), line=line)
    yard.pass_time(120)
    assert set(line.calls) == {"leases"}
    assert len(line.calls) <= 120 / 5.5


def test_a_leader_that_cannot_renew_stops_before_its_lease_expires(yard: Yard) -> None:
    line, book = Line(yard.memory), Notebook(yard.clock)
    loop = yard.loop(Duty("work", SECOND / 10, book), line=line)
    yard.pass_time(3)
    line.cut()
    (lease,) = yard.memory.leases()
    yard.pass_time(6)
    assert [loop.leading for loop in yard.loops] == [False]
    assert lease.expires_at is not None
    assert ManualClock().now() + timedelta(seconds=book.times[-1]) < lease.expires_at - SECOND
    line.mend()
    yard.pass_time(10)
    assert loop.leading


def test_a_leader_whose_lease_was_taken_stops_at_once(yard: Yard) -> None:
    book = Notebook(yard.clock)
    loop = yard.loop(Duty("work", SECOND / 10, book))
    yard.pass_time(1)
    (lease,) = yard.memory.leases()
    assert lease.holder is not None
    yard.memory.release("duties", lease.holder, lease.term)
    other = new_id()
    yard.memory.acquire("duties", other, ttl=timedelta(seconds=30))
    yard.pass_time(20)
    assert [loop.leading for loop in yard.loops] == [False]
    assert book.times[-1] <= LEASE_BEAT.total_seconds() + 0.1
    yard.pass_time(15)
    assert loop.leading
    (lease,) = yard.memory.leases()
    assert lease.term == 3


def test_a_suspended_leader_notices_the_loss_before_its_next_duty(yard: Yard) -> None:
    book = Notebook(yard.clock)
    loop = yard.loop(Duty("work", SECOND, book))
    yard.pass_time(1.5)
    runs = len(book.times)
    yard.clock.advance(timedelta(seconds=60))
    yard.memory.acquire("duties", new_id(), ttl=timedelta(seconds=30))
    loop.step()
    assert not loop.leading
    assert len(book.times) == runs


def test_a_closed_leader_hands_over_to_a_notified_follower(yard: Yard) -> None:
    listeners = [Deaf(yard.memory, yard.clock) for _ in range(3)]
    first, *others = [
        yard.loop(Promote(yard.memory, tick=TickDuty(yard.clock)).duty(), listener=deaf) for deaf in listeners
    ]
    yard.pass_time(1)
    for deaf in listeners:
        deaf.hear("tick")
    listener = yard.memory.listen()
    first.close()
    first.close()
    heard = listener.wait(0)
    listener.close()
    assert "duties" in heard
    for deaf in listeners:
        deaf.tell(heard)
    yard.pass_time(1, *others)
    assert sorted(other.leading for other in others) == [False, True]


def test_with_an_advisory_lock_one_leads_and_hands_over(yard: Yard) -> None:
    loops = [yard.loop(every(1, Done), coordination=Coordination.ADVISORY) for _ in range(3)]
    yard.pass_time(10)
    assert [loop.leading for loop in loops] == [True, False, False]
    loops[0].close()
    yard.pass_time(5.1, *loops[1:])
    assert sum(loop.leading for loop in loops) == 1


def test_without_lock_support_every_loop_runs_the_duties_at_intervals(yard: Yard) -> None:
    line, book = Line(yard.memory), Notebook(yard.clock)
    line.broken = lambda verb, given: BadSettings("no locks here") if verb == "hold" else None
    loop = yard.loop(every(5, book), line=line, coordination=Coordination.ADVISORY)
    yard.pass_time(11)
    assert book.times == [0, 5, 10]
    assert loop.leading
    assert line.calls == ["hold"]


# ---------------------------------------------------------------------------------------------------- concurrency


def test_two_concurrent_reclaims_never_reclaim_a_job_twice(yard: Yard) -> None:
    def policy_of(*_: object) -> Any:
        return DEFAULT_POLICY

    worker = a_worker()
    yard.memory.register(worker, lease=timedelta(seconds=30))
    ids = enqueue(yard.memory, 300)
    claim(yard.memory, worker.id)
    yard.memory.retire([worker.id])
    second = Reclaim(yard.memory, yard.clock, policy_of, Random(2), batch=200)
    line = Line(yard.memory)
    between: list[int] = []

    def overtake(verb: str, given: tuple[Any, ...]) -> None:
        if verb == "finish":  # the first reclaim has decided and not yet written
            between.append(second().items)

    line.broken = overtake
    first = Reclaim(line.store, yard.clock, policy_of, Random(1), batch=100)
    mine = 0
    for _ in range(10):
        mine += first().items
    assert mine + sum(between) == 300
    jobs = the_jobs(yard.memory, ids)
    assert {(job.state, job.crashes) for job in jobs} == {(JobState.PENDING, 1)}
    assert len(yard.memory.executions(ids, tenant=ALL_TENANTS)) == 300
