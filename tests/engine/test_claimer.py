"""What a worker knows of many gates: it comes to all of them, soon where they give something and at its leisure where not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tidemill.clock import ManualClock
from tidemill.domain.cluster import Worker
from tidemill.domain.job import NewJob
from tidemill.domain.lanes import Lane
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
