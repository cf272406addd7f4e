"""Tests of hand-over and failover with real threads and time, on every store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from tests.engine.cluster_kit import Line, a_worker, claim, enqueue, eventually, job, the_jobs
from tests.grounds import url_of

from tidemill.clock import SystemClock
from tidemill.domain.cluster import Coordination, duty_of_lease
from tidemill.domain.decide import DEFAULT_POLICY, Policy
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Details
from tidemill.domain.states import JobState
from tidemill.engine.duties import Promote, Reclaim, TickDuty, usual_duties
from tidemill.engine.duty import Duties, Duty
from tidemill.engine.heartbeat import HeartbeatThread
from tidemill.engine.listener import WakeupListener
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

pytestmark = pytest.mark.long

BEAT, EXPIRY = timedelta(milliseconds=250), timedelta(seconds=1)


def usual(claim: Claim, details: Details) -> Policy:
    return DEFAULT_POLICY


class House:
    """Opens the same store again for each participant, and closes everything at the end."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url, self.stack = url, stack
        self.clock = SystemClock()
        self.first = self._opened(migrate=True)
        self.first.lanes()

    def _opened(self, *, migrate: bool = False) -> Store:
        store = open_store(self.url, clock=self.clock, migrate=migrate)
        self.stack.callback(store.close)
        return store

    def store(self) -> Store:
        return self.first if self.url == "memory://" else self._opened()

    def loop(
        self,
        duties: Callable[[Store], list[Duty]],
        coordination: Coordination,
        listener: bool = True,
        *,
        lease_per_duty: bool = False,
    ) -> tuple[Duties, Line]:
        line = Line(self.store())
        listening = WakeupListener(line.store, self.clock) if listener else None
        loop = Duties(
            line.store,
            self.clock,
            new_id(),
            duties(line.store),
            coordination=coordination,
            lease_beat=BEAT,
            lease_expiry=EXPIRY,
            lease_per_duty=lease_per_duty,
            random=Random(),
            listener=listening,
        )
        if listening is not None:
            listening.start()
            self.stack.callback(listening.close)
        loop.start()
        self.stack.callback(loop.close)
        return loop, line


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    url = url_of(request.param, tmp_path, request)
    with ExitStack() as stack:
        yield House(url, stack)


def ticking(store: Store) -> list[Duty]:
    half = timedelta(milliseconds=500)
    return [Promote(store, tick=TickDuty(SystemClock(), every=half)).duty(half)]


@pytest.mark.parametrize("listener", [True, False], ids=["hearing", "deaf"])
def test_a_silent_leader_is_replaced_when_its_lease_expires(house: House, listener: bool) -> None:
    first, line = house.loop(ticking, Coordination.LEASE, listener)
    eventually(lambda: first.leading)
    others = [house.loop(ticking, Coordination.LEASE, listener)[0] for _ in range(3)]
    eventually(lambda: line.calls.count("renew") >= 3)
    assert not any(other.leading for other in others)
    line.cut()
    eventually(lambda: any(other.leading for other in others), within=10 * EXPIRY.total_seconds())
    eventually(lambda: not first.leading)
    (lease,) = house.first.leases()
    assert lease.term == 2


@pytest.mark.parametrize("coordination", [Coordination.LEASE, Coordination.ADVISORY])
def test_a_closed_leader_hands_over_at_once(house: House, coordination: Coordination) -> None:
    loops = [house.loop(ticking, coordination)[0] for _ in range(3)]
    for _ in range(2):
        eventually(lambda: sum(loop.leading for loop in loops) == 1)
        (leader,) = [loop for loop in loops if loop.leading]
        loops.remove(leader)
        leader.close()
        assert eventually(lambda: any(loop.leading for loop in loops)) < 2.5


def test_leases_of_duties_spread_over_processes_and_have_one_holder_each(house: House) -> None:
    def every_duty(store: Store) -> list[Duty]:
        return usual_duties(store, house.clock, usual, Random(), led=True)

    def holders() -> list[UUID | None]:
        now = house.first.now()
        leases = [lease for lease in house.first.leases() if lease.held(now)]
        assert all(lease.health(now) in ("ok", "late") for lease in leases)
        return [lease.holder for lease in leases if duty_of_lease(lease.name) is not None]

    first, _ = house.loop(every_duty, Coordination.LEASE, lease_per_duty=True)
    wanted = len(every_duty(house.first)) - 1  # two share a lease
    eventually(lambda: len(holders()) == wanted)
    assert len(set(holders())) == 1
    second, _ = house.loop(every_duty, Coordination.LEASE, lease_per_duty=True)
    eventually(lambda: max(Counter(holders()).values(), default=wanted) <= wanted // 2 + 1, within=40)
    eventually(lambda: len(holders()) == wanted)
    assert len(set(holders())) == 2
    assert first.leading
    assert second.leading
    first.close()
    eventually(lambda: len(holders()) == wanted and len(set(holders())) == 1)


def test_due_jobs_are_promoted_without_polling(house: House) -> None:
    loop, line = house.loop(
        lambda store: usual_duties(store, house.clock, usual, Random()), Coordination.LEASE
    )
    eventually(lambda: loop.leading and "promote" in line.calls)
    (id,) = enqueue(house.first, delay=timedelta(milliseconds=300))
    house.first.notify(["scheduled"])
    took = eventually(lambda: job(house.first, id).state is JobState.PENDING)
    assert 0.2 <= took < 3


def test_two_loops_with_coordination_everyone_do_each_transition_once(house: House) -> None:
    worker = a_worker()
    house.first.register(worker, lease=timedelta(seconds=60))
    ids = enqueue(house.first, 400)
    claim(house.first, worker.id)
    late = enqueue(house.first, 400, delay=timedelta(milliseconds=10))
    house.first.retire([worker.id])

    def duties(store: Store) -> list[Duty]:
        made = usual_duties(store, house.clock, usual, Random(), batch=20)
        return [Duty(duty.name, timedelta(milliseconds=20), duty.run, duty.topics) for duty in made]

    loops = [house.loop(duties, Coordination.EVERYONE)[0] for _ in range(2)]
    eventually(lambda: {job.state for job in the_jobs(house.first, ids + late)} == {JobState.PENDING})
    for loop in loops:
        loop.close()
    assert {job.crashes for job in the_jobs(house.first, ids)} == {1}
    assert len(house.first.executions(ids, tenant=ALL_TENANTS)) == 400
    assert _items(loops, "reclaim") == 400
    assert _items(loops, "promote") == 400


def _items(loops: list[Duties], duty: str) -> int:
    total = 0
    for loop in loops:
        facts = loop.status()[duty]
        assert isinstance(facts, dict)
        total += facts["items"]
    return total


@pytest.mark.long
def test_a_disconnected_worker_is_lost_before_its_jobs_are_reclaimed(house: House) -> None:
    order: list[str] = []
    lost = threading.Event()

    def on_lost(id: object) -> None:
        order.append("lost")
        lost.set()

    line = Line(house.store())
    heart = HeartbeatThread(
        line.store,
        house.clock,
        beat=BEAT,
        expiry=2 * EXPIRY,
        on_cancel=lambda request: None,
        on_drain=lambda id: None,
        on_lost=on_lost,
    )
    heart.start()
    house.stack.callback(heart.close)
    worker = a_worker()
    heart.add(worker)
    (id,) = enqueue(house.first)
    claim(house.first, worker.id)

    def duties(store: Store) -> list[Duty]:
        return [Reclaim(store, house.clock, usual, Random()).duty(timedelta(milliseconds=50))]

    house.loop(duties, Coordination.EVERYONE)
    eventually(lambda: line.calls.count("beat") >= 10)
    assert job(house.first, id).state is JobState.RUNNING
    line.cut()
    eventually(lambda: job(house.first, id).state is JobState.PENDING)
    order.append("reclaimed")
    assert lost.wait(20)
    assert order == ["lost", "reclaimed"]


def test_jobs_of_a_runner_seen_to_die_are_reclaimed_at_once(house: House) -> None:
    worker = a_worker()
    house.first.register(worker, lease=timedelta(hours=1))
    ids = enqueue(house.first, 50)
    claim(house.first, worker.id)
    reclaim = Reclaim(house.first, house.clock, usual, Random(), batch=20)
    assert reclaim.now([worker.id]) == 50
    assert {job.state for job in the_jobs(house.first, ids)} == {JobState.PENDING}
