"""Tests of the claimer with many limited lanes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tidemill.clock import ManualClock
from tidemill.domain.cluster import Worker
from tidemill.domain.job import NewJob
from tidemill.domain.lanes import SAFETY, Lane
from tidemill.domain.limits import LimitKind, Rule
from tidemill.engine.exchange.lane_reader import LATEST, PAGE, SOONEST
from tidemill.engine.exchange.planner import ClaimPlan, ExecutorLoad, Planner
from tidemill.engine.exchange.sources import Claimer
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store

GATES = 3 * PAGE + PAGE // 2
PLAN = ClaimPlan(("loop",), PAGE, True)


class Slow(ManualClock):
    """A clock that advances at each reading, as a real one does while a page is read."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0.0

    def monotonic(self) -> float:
        if self.step:
            self.advance(timedelta(seconds=self.step))
        return super().monotonic()


@pytest.fixture
def store() -> Iterator[Store]:
    made = open_store("memory://")
    made.migrate()
    made.put_rules([Rule("key", LimitKind.CONCURRENCY, 1)])
    made.enqueue([NewJob(new_id(), "work", limits=(f"key/{n:05}",)) for n in range(GATES)])
    yield made
    made.close()


def a_claimer(store: Store, clock: ManualClock) -> Claimer:
    worker = store.register(Worker(new_id(), "here"), lease=timedelta(hours=1))
    return Claimer(
        store, clock, worker.id, None, Planner({"loop": ExecutorLoad("loop", 9, ("work",))}, 0.1, PAGE)
    )


def asked(claimer: Claimer) -> list[Lane]:
    return [lane for request in claimer.requests(PLAN) for lane in request.lanes if lane.gate]


def test_the_next_page_is_read_at_once_while_pages_are_left_and_yield_claims(
    store: Store,
) -> None:
    clock = ManualClock()
    claimer = a_claimer(store, clock)
    done = 0
    while done < GATES:
        claimer.refresh()
        (request,) = claimer.requests(PLAN)
        claims = store.claim(request)
        claimer.claimed(PLAN, request, claims)
        assert len(claims) == min(PAGE, GATES - done)
        done += len(claims)
        if done < GATES:
            assert claimer.retry_at <= clock.monotonic()
            assert claimer.is_stale()


def test_pages_without_claims_are_read_at_a_slower_pace(store: Store) -> None:
    other = store.register(Worker(new_id(), "elsewhere"), lease=timedelta(hours=1))
    clock = Slow()
    claimer = a_claimer(store, clock)
    claimer.refresh()
    (request,) = claimer.requests(PLAN)
    everything = request._replace(worker=other.id, lanes=store.gates(limit=GATES), limit=GATES)
    assert len(store.claim(everything)) == GATES
    store.enqueue([NewJob(new_id(), "work", limits=(f"key/{n:05}",)) for n in range(GATES)])
    claimer.claimed(PLAN, request, store.claim(request))
    clock.step = 0.001
    rests = []
    for _ in range(2):
        claimer.refresh()
        rests.append(claimer.retry_at - ManualClock.monotonic(clock))
        assert asked(claimer) == []
    assert 0 < rests[0] < rests[1] < LATEST


def test_the_wait_grows_each_time_all_pages_were_read_without_a_claim(store: Store) -> None:
    other = store.register(Worker(new_id(), "elsewhere"), lease=timedelta(hours=1))
    clock = ManualClock()
    claimer = a_claimer(store, clock)
    claimer.refresh()
    (request,) = claimer.requests(PLAN)
    everything = request._replace(worker=other.id, lanes=store.gates(limit=GATES), limit=GATES)
    assert len(store.claim(everything)) == GATES
    store.enqueue([NewJob(new_id(), "work", limits=(f"key/{n:05}",)) for n in range(PAGE // 2)])
    claimer.claimed(PLAN, request, store.claim(request))
    claimer.refresh()
    rests = []
    for _ in range(3):
        claimer.refresh()
        rests.append(claimer.retry_at - clock.monotonic())
    assert SOONEST <= rests[0] < rests[1] < rests[2] <= LATEST


# Older unlimited jobs ------------------------------------------------------------------------------------------------------


def flooded() -> Store:
    """A store with very many unlimited jobs, and a few limited ones behind them."""
    made = open_store("memory://")
    made.migrate()
    made.put_rules([Rule("key", LimitKind.CONCURRENCY, 1)])
    made.enqueue([NewJob(new_id(), "work") for _ in range(SAFETY + 2 * PAGE)])
    made.enqueue([NewJob(new_id(), "work", limits=(f"key/{n}",)) for n in range(5)])
    return made


def step(store: Store, claimer: Claimer, plan: ClaimPlan = PLAN) -> list[int]:
    """Claim as the claim loop does, and return the number of limited lanes in each request."""
    claimed, gates = 0, []
    for made in claimer.requests(plan):
        request = made._replace(limit=made.limit - claimed)
        found = store.claim(request)
        claimer.claimed(plan, request, found)
        claimed += len(found)
        gates.append(sum(bool(lane.gate) for lane in request.lanes))
        if claimed >= plan.limit:
            break
    return gates


def test_limited_jobs_behind_many_unlimited_ones_are_requested_in_their_turn() -> None:
    store = flooded()
    try:
        claimer = a_claimer(store, ManualClock())
        claimer.refresh()
        assert step(store, claimer) == [5, 0]  # the number of unlimited jobs is not known yet
        store.enqueue([NewJob(new_id(), "work", limits=(f"key/{n}",)) for n in range(5, 10)])
        claimer.refresh()
        seen = [step(store, claimer) for _ in range((SAFETY + 2 * PAGE) // PAGE)]
        assert seen[0] == [0]  # enough jobs were found without limited lanes
        assert [0, 5] in seen  # there was room left, so the limited lanes were requested in the same step
        assert store.gates() == []
    finally:
        store.close()


def test_limited_jobs_do_not_wait_behind_a_few_unlimited_ones() -> None:
    store = flooded()
    try:
        claimer = a_claimer(store, ManualClock())
        claimer.refresh()
        huge = PLAN._replace(limit=2 * SAFETY + 4 * PAGE)  # more than the number of jobs
        step(store, claimer, huge)
        store.enqueue([NewJob(new_id(), "work") for _ in range(3)])
        store.enqueue([NewJob(new_id(), "work", limits=(f"key/{n}",)) for n in range(5, 10)])
        claimer.refresh()
        assert step(store, claimer) == [5, 0]
    finally:
        store.close()


def a_rated_claimer(store: Store, clock: ManualClock) -> tuple[Claimer, Planner]:
    """A claimer that has seen a rate limit exhausted for 1.025 s, and unlimited jobs."""
    store.put_rules([Rule("slow", LimitKind.RATE, 1, timedelta(seconds=1))])
    store.enqueue([NewJob(new_id(), "work", limits=("slow",)) for _ in range(2)])
    store.enqueue([NewJob(new_id(), "work") for _ in range(9)])
    worker = store.register(Worker(new_id(), "here"), lease=timedelta(hours=1))
    planner = Planner({"loop": ExecutorLoad("loop", 9, ("work",), mean=0.5)}, 0.1, PAGE)
    claimer = Claimer(store, clock, worker.id, None, planner)
    claimer.refresh()
    request = next(claimer.requests(PLAN))._replace(limit=1)
    claims = store.claim(request)
    assert [claim.limits for claim in claims] == [("slow",)]
    # The limited lane is requested once more and yields nothing, so it sleeps until the rate has room.
    claimer.claimed(PLAN, request, claims)
    request = next(claimer.requests(PLAN))
    claimer.claimed(PLAN, request, store.claim(request))
    claimer.refresh()
    return claimer, planner


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def rated(clock: ManualClock) -> Iterator[tuple[Claimer, Planner]]:
    store = MemoryStore(clock)
    yield a_rated_claimer(store, clock)
    store.close()


def limits_asked(claimer: Claimer, slots: int) -> list[int]:
    return [request.limit for request in claimer.requests(ClaimPlan(("loop",), slots, True))]


def test_a_slot_is_reserved_just_before_a_rate_limit_has_room_again(
    clock: ManualClock, rated: tuple[Claimer, Planner]
) -> None:
    claimer, planner = rated
    assert planner.rated
    clock.advance(timedelta(seconds=1.0))
    assert limits_asked(claimer, 1) == [1]
    clock.advance(timedelta(seconds=0.02))
    assert limits_asked(claimer, 1) == []
    # Never twice in a row, so that unlimited jobs continue.
    assert limits_asked(claimer, 1) == [1]


def test_only_one_of_several_free_slots_is_reserved(
    clock: ManualClock, rated: tuple[Claimer, Planner]
) -> None:
    clock.advance(timedelta(seconds=1.02))
    assert limits_asked(rated[0], 4) == [3]


def test_no_slot_is_reserved_while_slots_become_free_all_the_time(
    clock: ManualClock, rated: tuple[Claimer, Planner]
) -> None:
    claimer, planner = rated
    planner.kinds["loop"].mean = 0.005
    clock.advance(timedelta(seconds=1.02))
    assert limits_asked(claimer, 1) == [1]
