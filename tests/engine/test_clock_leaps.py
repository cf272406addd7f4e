"""Tests of jumps of the store's clock, which must not cost a job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random
from uuid import UUID

import pytest
from tests.engine.cluster_kit import SECOND, Line, a_worker, claim, enqueue, job, the_jobs
from tests.engine.duty_kit import Yard, every

from tidemill import All, App, Every
from tidemill.clock import ManualClock
from tidemill.domain.decide import DEFAULT_POLICY, Policy
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Claim, Details
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.schedule_rules import Misfire
from tidemill.domain.states import JobState
from tidemill.engine.duties import Expire, FireDuty, FireHere, Reclaim, Sweep
from tidemill.engine.duty import Done
from tidemill.engine.heartbeat import HeartbeatThread
from tidemill.errors import StoreUnavailable
from tidemill.stores.memory import MemoryStore

BEAT, EXPIRY = timedelta(seconds=5), timedelta(seconds=30)
LEAPS = [60, -60, 3600, -3600]


def usual(claim: Claim, details: Details) -> Policy:
    return DEFAULT_POLICY


class Plant:
    """A worker with a heartbeat, and an observer on its own connection, stepped with a manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.line, self.observers_line = Line(self.memory), Line(self.memory)
        self.lost: list[UUID] = []
        self.heart = HeartbeatThread(
            self.line.store,
            self.clock,
            beat=BEAT,
            expiry=EXPIRY,
            on_cancel=lambda request: None,
            on_drain=lambda worker: None,
            on_lost=self.lost.append,
            random=Random(1),
        )
        self.worker = a_worker()
        self.heart.add(self.worker)
        store = self.observers_line.store
        self.reclaim = Reclaim(store, self.clock, usual, Random(1))
        self.expire = Expire(store, self.clock, usual, Random(1))
        self.sweep = Sweep(store)
        self.reclaimed = self.expired = 0
        self.dead = False

    def hold(self, count: int = 3, **fields: object) -> list[UUID]:
        ids = enqueue(self.memory, count, **fields)
        assert len(claim(self.memory, self.worker.id)) == count
        return ids

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(SECOND)
            if not self.dead:
                self.heart.step()
            try:
                self.reclaimed += self.reclaim().items
                self.expired += self.expire().items
                self.sweep()
            except StoreUnavailable:
                pass

    def untouched(self, ids: list[UUID]) -> bool:
        return {(job.state, job.attempt, job.crashes) for job in the_jobs(self.memory, ids)} == {
            (JobState.RUNNING, 1, 0)
        }


@pytest.fixture
def plant() -> Iterator[Plant]:
    plant = Plant()
    yield plant
    plant.memory.close()


@pytest.mark.parametrize("seconds", LEAPS)
@pytest.mark.parametrize("before", range(6))
def test_a_live_worker_keeps_its_jobs_through_clock_jumps(plant: Plant, seconds: int, before: int) -> None:
    ids = plant.hold()
    for _ in range(3):
        plant.pass_time(20 + before)
        plant.clock.leap(timedelta(seconds=seconds))
    plant.pass_time(60)
    assert plant.lost == []
    assert (plant.reclaimed, plant.expired) == (0, 0)
    assert plant.untouched(ids)
    assert len(claim(plant.memory, plant.worker.id)) == 0
    enqueue(plant.memory)
    assert len(claim(plant.memory, plant.worker.id)) == 1


@pytest.mark.parametrize("seconds", LEAPS)
def test_jobs_of_a_dead_worker_are_reclaimed_in_time_through_a_clock_jump(plant: Plant, seconds: int) -> None:
    ids = plant.hold()
    plant.pass_time(20)
    plant.dead = True
    plant.clock.leap(timedelta(seconds=seconds))
    plant.pass_time(37)
    assert {job.state for job in the_jobs(plant.memory, ids)} == {JobState.PENDING}


def test_jobs_of_a_dead_worker_are_reclaimed_after_35_to_37_seconds(plant: Plant) -> None:
    ids = plant.hold()
    plant.pass_time(20)
    plant.dead = True
    plant.pass_time(34)
    assert plant.untouched(ids)
    plant.pass_time(3)
    assert plant.reclaimed == 3


@pytest.mark.parametrize("phase", range(5))
def test_an_outage_of_twenty_seconds_for_all_processes_costs_no_lease(plant: Plant, phase: int) -> None:
    ids = plant.hold()
    for _ in range(3):
        plant.pass_time(20 + phase)
        for line in (plant.line, plant.observers_line):
            line.cut()
        plant.pass_time(20)
        for line in (plant.line, plant.observers_line):
            line.mend()
        plant.pass_time(20)
    assert plant.lost == []
    assert plant.untouched(ids)


def test_a_disconnected_worker_gives_up_before_its_jobs_are_reclaimed(plant: Plant) -> None:
    ids = plant.hold()
    plant.pass_time(20)
    plant.line.cut()
    while not plant.lost:
        plant.pass_time(1)
        assert plant.untouched(ids)
    plant.pass_time(4)
    assert plant.untouched(ids)
    plant.pass_time(4)
    assert plant.reclaimed == 3


@pytest.mark.parametrize("seconds", [60, 3600])
def test_a_clock_jump_does_not_time_out_a_job_that_has_time_left(plant: Plant, seconds: int) -> None:
    (id,) = plant.hold(1, timeout=timedelta(seconds=50))
    plant.pass_time(5)
    plant.clock.leap(timedelta(seconds=seconds))
    plant.pass_time(44)
    assert plant.untouched([id])
    plant.pass_time(30)  # its runner did not stop it in time
    assert job(plant.memory, id).attempt == 1
    assert plant.expired == 1


@pytest.mark.parametrize("seconds", LEAPS)
def test_the_duties_continue_after_a_clock_jump_and_one_process_leads(seconds: int) -> None:
    yard = Yard()
    try:
        ran: list[float] = []

        def run() -> Done:
            ran.append(yard.clock.monotonic())
            return Done()

        loops = [yard.loop(every(1, run)) for _ in range(2)]
        yard.pass_time(30)
        yard.clock.leap(timedelta(seconds=seconds))
        yard.pass_time(30)
        assert sum(loop.leading for loop in loops) == 1
        gaps = [later - earlier for earlier, later in pairwise(ran)]
        assert max(gaps) < 10
    finally:
        yard.close()


@pytest.mark.parametrize("seconds", LEAPS)
def test_a_leader_that_dies_during_a_clock_jump_is_replaced_within_seconds(seconds: int) -> None:
    yard = Yard()
    try:
        first = yard.loop(every(1, Done))
        yard.pass_time(5)
        second = yard.loop(every(1, Done))
        yard.pass_time(5)
        assert (first.leading, second.leading) == (True, False)
        yard.clock.leap(timedelta(seconds=seconds))
        yard.pass_time(16, second)
        assert second.leading
        first.step()
        assert not first.leading
    finally:
        yard.close()


@pytest.mark.parametrize("hours", [1, -1])
def test_schedules_keep_firing_after_a_clock_jump_and_never_fire_twice(hours: int) -> None:
    clock = ManualClock()
    memory = MemoryStore(clock)
    app = App(memory, clock=clock)
    try:

        @app.task
        def work() -> None: ...

        app.schedules.add(work, Every(3 * SECOND), key="often", misfire="once")
        fire = FireDuty(memory, clock)

        def fires_within(seconds: int) -> int:
            found = 0
            for _ in range(seconds):
                clock.advance(SECOND)
                found += fire().items
            return found

        assert fires_within(30) == 10
        clock.leap(timedelta(hours=hours))
        assert fires_within(60) >= 12
        clock.leap(timedelta(hours=-hours))
        assert fires_within(60) >= 12
        (schedule,) = app.schedules.list()
        instants = [fired.fire_at for fired in memory.fires(schedule.id, tenant=ALL_TENANTS, limit=1000)]
        assert len(instants) == len(set(instants))
        jobs = memory.count(JobFilter(ALL_TENANTS))
        assert sum(jobs.values()) <= len(instants)
    finally:
        app.close()


class Second:
    """A schedule of either scope that fires every second, on a manual clock."""

    def __init__(self, scope: str, misfire: Misfire) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.app = App(self.memory, clock=self.clock)

        @self.app.task
        def work() -> None: ...

        self.work = work
        self.fire = self.new_duty(scope)
        self.fire()
        self.id = self.app.schedules.add(
            work, Every(SECOND), key="often", misfire=misfire, scope=scope, overlap="allow"
        ).id

    def new_duty(self, scope: str) -> FireDuty | FireHere:
        return (
            FireHere(self.memory, self.clock, "a")
            if scope == "instance"
            else FireDuty(self.memory, self.clock)
        )

    def jobs(self) -> set[datetime]:
        """The fire times that created a job."""
        fires = self.memory.fires(self.id, tenant=ALL_TENANTS, limit=10_000)
        made = [fired.fire_at for fired in fires if fired.job_id is not None]
        assert len(made) == len(set(made))
        return set(made)

    def pass_time(self, seconds: int) -> list[int]:
        """The number of fires that created a job, per second."""
        counts = []
        for _ in range(seconds):
            self.clock.advance(SECOND)
            before = len(self.jobs())
            self.fire()
            counts.append(len(self.jobs()) - before)
        return counts


@pytest.mark.parametrize("misfire", ["skip", "once", All(100)])
@pytest.mark.parametrize("scope", ["cluster", "instance"])
@pytest.mark.parametrize("seconds_before", [0, 30])
def test_a_schedule_continues_from_the_present_after_the_clock_went_back(
    scope: str, misfire: Misfire, seconds_before: int
) -> None:
    plant = Second(scope, misfire)
    try:
        assert sum(plant.pass_time(seconds_before)) == seconds_before
        earlier, present = plant.jobs(), plant.clock.leap(timedelta(hours=-1))
        counts = plant.pass_time(60)
        assert max(counts) == 1
        assert sum(counts[-30:]) == 30
        assert min(plant.jobs() - earlier) > present
    finally:
        plant.app.close()


@pytest.mark.parametrize("scope", ["cluster", "instance"])
def test_a_new_leader_or_node_process_fires_no_missed_times_after_a_step_back(scope: str) -> None:
    plant = Second(scope, "skip")
    try:
        plant.pass_time(5)
        plant.clock.leap(timedelta(hours=-1))
        plant.fire = plant.new_duty(scope)
        assert plant.fire().items == 0
        assert plant.pass_time(5) == [1] * 5
    finally:
        plant.app.close()


@pytest.mark.parametrize("misfire", ["skip", "once"])
def test_a_schedule_continues_after_a_short_clock_jump_forward_and_back(misfire: Misfire) -> None:
    """The jump is shorter than the time between two reads of the clock while no schedule is due."""
    plant = Second("cluster", misfire)
    try:
        plant.pass_time(21)
        plant.clock.leap(timedelta(hours=1))
        assert sum(plant.pass_time(3)) >= 3
        plant.clock.leap(timedelta(hours=-1))
        assert sum(plant.pass_time(60)[-30:]) == 30
    finally:
        plant.app.close()


def test_a_schedule_continues_after_another_leader_fired_by_a_wrong_clock() -> None:
    plant = Second("cluster", "skip")
    try:
        first = plant.fire
        plant.pass_time(3)
        plant.fire = plant.new_duty("cluster")
        plant.clock.leap(timedelta(hours=1))
        assert sum(plant.pass_time(100)) >= 100
        plant.clock.leap(timedelta(hours=-1))
        plant.fire = first
        assert plant.pass_time(10) == [0] + [1] * 9
    finally:
        plant.app.close()


@pytest.mark.parametrize("burst", [None, 2])
def test_a_rate_limit_waits_for_one_window_after_the_clock_went_back(burst: int | None) -> None:
    clock = ManualClock()
    memory = MemoryStore(clock)
    rule = Rule("fast", LimitKind.RATE, max=2, per=10 * SECOND, burst=burst)
    worker = a_worker()
    memory.register(worker, lease=timedelta(days=1))
    enqueue(memory, 9, limits=("fast",))

    def take() -> int:
        request = ClaimRequest(worker.id, memory.gates(), 9, rules={"fast": rule})
        return len(memory.claim(request))

    clock.leap(timedelta(hours=1))
    assert (take(), take()) == (2, 0)
    clock.leap(timedelta(hours=-1))
    memory.beat([worker.id], lease=timedelta(days=1))
    assert take() == 0
    clock.advance(10 * SECOND)
    assert (take(), take()) == (2, 0)
    memory.close()
