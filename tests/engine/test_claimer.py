"""What a worker knows of many gates: it comes to all of them, soon where they give something and at its leisure where not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tidemill.clock import ManualClock
from tidemill.domain.cluster import Worker
from tidemill.domain.job import NewJob
from tidemill.domain.lanes import SAFETY, Lane
from tidemill.domain.limits import LimitKind, Rule
from tidemill.engine.claimer import LATEST, PAGE, SOONEST, Claimer
from tidemill.engine.plan import Kind, Plan, Planner
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

GATES = 3 * PAGE + PAGE // 2
PLAN = Plan(("loop",), PAGE, True)


class Slow(ManualClock):
    """A clock that goes on by itself while it is asked, as a real one does while a page is read."""

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
    return Claimer(store, clock, worker.id, None, Planner({"loop": Kind("loop", 9, ("work",))}, 0.1, PAGE))


def asked(claimer: Claimer) -> list[Lane]:
    return [lane for request in claimer.requests(PLAN) for lane in request.lanes if lane.gate]


def test_while_pages_are_left_and_what_was_found_gives_something_the_next_one_is_read_at_once(
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


def test_pages_that_give_nothing_are_read_at_leisure(store: Store) -> None:
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


def test_when_all_pages_were_read_for_nothing_the_next_look_waits_longer_and_longer(store: Store) -> None:
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


# Those who came first ------------------------------------------------------------------------------------------------------


def flooded() -> Store:
    """A great many jobs without limits, and behind them some with."""
    made = open_store("memory://")
    made.migrate()
    made.put_rules([Rule("key", LimitKind.CONCURRENCY, 1)])
    made.enqueue([NewJob(new_id(), "work") for _ in range(SAFETY + 2 * PAGE)])
    made.enqueue([NewJob(new_id(), "work", limits=(f"key/{n}",)) for n in range(5)])
    return made


def step(store: Store, claimer: Claimer, plan: Plan = PLAN) -> list[int]:
    """Claim as a pump does; how many of each request's lanes were gates."""
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


def test_jobs_with_limits_that_came_last_are_asked_for_when_their_time_has_come() -> None:
    store = flooded()
    try:
        claimer = a_claimer(store, ManualClock())
        claimer.refresh()
        assert step(store, claimer) == [5, 0]  # nobody knows yet how many there are
        store.enqueue([NewJob(new_id(), "work", limits=(f"key/{n}",)) for n in range(5, 10)])
        claimer.refresh()
        seen = [step(store, claimer) for _ in range((SAFETY + 2 * PAGE) // PAGE)]
        assert seen[0] == [0]  # enough was found without them
        assert [0, 5] in seen  # there was room left, and so they were asked in the same step
        assert store.gates() == []
    finally:
        store.close()


def test_where_little_waits_without_limits_nobody_waits_for_it() -> None:
    store = flooded()
    try:
        claimer = a_claimer(store, ManualClock())
        claimer.refresh()
        huge = PLAN._replace(limit=2 * SAFETY + 4 * PAGE)  # more than there are
        step(store, claimer, huge)
        store.enqueue([NewJob(new_id(), "work") for _ in range(3)])
        store.enqueue([NewJob(new_id(), "work", limits=(f"key/{n}",)) for n in range(5, 10)])
        claimer.refresh()
        assert step(store, claimer) == [5, 0]
    finally:
        store.close()
