"""Tests of jobs under a rate limit: a late start is recorded again or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.engine.kit import Notes, World

from tidemill import App, ManualClock, Rate
from tidemill.domain.cluster import Worker
from tidemill.domain.job import NewJob
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.limits import LimitKind, Rule, Rules, enforced
from tidemill.domain.outcome import Released, Succeeded
from tidemill.engine.context import StartRefused
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.exchange.start_deadlines import PUNCTUAL, TRIES, Permits, startable
from tidemill.errors import StoreUnavailable
from tidemill.ids import new_id

SECOND = timedelta(seconds=1)
RULE = enforced(Rule("calls", LimitKind.RATE, 2, SECOND))
RULES: Rules = {"calls": RULE}


class Late(Notes):
    """An outlet whose job is late for this many renewals, and then on time or refused."""

    def __init__(self, clock: ManualClock, renewals: int, *, refused: bool = False) -> None:
        super().__init__(clock)
        self.start_by = -1.0
        self.left, self.refused = renewals, refused

    def renew_start(self) -> None:
        self.left -= 1
        if self.refused:
            raise StartRefused("the rate is full")
        self.start_by = -1.0 if self.left else 1e9


def late(world: World, renewals: int, *, refused: bool = False) -> Late:
    world.outlet = outlet = Late(world.clock, renewals, refused=refused)
    return outlet


def test_a_late_function_is_called_once_its_start_is_recorded_again() -> None:
    world, called = World(), []
    outlet = late(world, 2)
    ended = world.run(lambda: called.append(outlet.left))
    assert isinstance(ended.outcome, Succeeded)
    assert called == [0]


def test_a_refused_function_is_not_called_and_is_released() -> None:
    world, called = World(), []
    late(world, 1, refused=True)
    assert world.run(lambda: called.append(1)).outcome == Released("the rate is full")
    assert called == []


def test_a_late_coroutine_is_called_once_its_start_is_recorded_again() -> None:
    world, called = World(), []
    outlet = late(world, 2)

    async def work() -> None:
        called.append(outlet.left)

    assert isinstance(asyncio.run(world.arun(work)).outcome, Succeeded)
    assert called == [0]


def test_a_refused_coroutine_is_not_called_and_is_released() -> None:
    world = World()
    late(world, 1, refused=True)

    async def work() -> None:
        raise AssertionError("it was called")

    assert asyncio.run(world.arun(work)).outcome == Released("the rate is full")


def test_a_task_class_is_created_before_its_start_is_checked() -> None:
    world, order = World(), []
    outlet = late(world, 1)

    class Work:
        def __init__(self) -> None:
            order.append(("made", outlet.left))

        def run(self) -> None:
            order.append(("run", outlet.left))

    assert isinstance(world.run(Work).outcome, Succeeded)
    assert order == [("made", 1), ("run", 0)]


# Permits -----------------------------------------------------------------------------------------------------------------


class RenewalHarness:
    """A worker with two claimed jobs under the rate limit."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.app = App("memory://", clock=self.clock)
        self.store = self.app.store
        self.app.task(name="call", max_concurrent=0)(lambda: None)
        self.rules = RULES
        self.lost: list[HeldJob] = []
        self.permits = Permits(self.store, self.clock, lambda: self.rules, self.lost.extend)
        self.jobs = self.claim(2)

    def claim(self, count: int) -> list[HeldJob]:
        self.store.enqueue([NewJob(new_id(), "call", "{}", limits=("calls",)) for _ in range(count)])
        worker = self.store.register(Worker(new_id(), "a worker"), lease=timedelta(days=1)).id
        claims = self.store.claim(ClaimRequest(worker, self.store.gates(), count, rules=RULES))
        declared = self.app.registry.get("call")
        found: list[HeldJob] = []
        for claim in claims:
            held = HeldJob.__new__(HeldJob)
            held.claim, held.declared, held.renewals, held.start_by = claim, declared, 0, None
            found.append(held)
        return found


@pytest.fixture
def harness() -> Any:
    harness = RenewalHarness()
    yield harness
    harness.app.close()


def test_a_job_must_start_within_most_of_the_slack(harness: RenewalHarness) -> None:
    harness.permits.give(harness.jobs, dated=5.0)
    assert {held.start_by for held in harness.jobs} == {5.0 + PUNCTUAL * 0.025}
    harness.permits.give(harness.jobs, dated=None)
    assert {held.start_by for held in harness.jobs} == {float("-inf")}


def test_a_renewed_start_counts_from_the_time_of_the_renewal(harness: RenewalHarness) -> None:
    harness.clock.advance(SECOND / 2)
    assert harness.permits.renew(harness.jobs[0]) is None
    assert harness.jobs[0].start_by == harness.clock.monotonic() + PUNCTUAL * 0.025
    harness.clock.advance(SECOND / 2 + RULE.slack)
    assert len(harness.claim(2)) == 1


def test_a_late_start_is_refused_if_the_rate_limit_is_used_up(harness: RenewalHarness) -> None:
    harness.clock.advance(SECOND + RULE.slack)
    assert len(harness.claim(2)) == 2
    assert (
        harness.permits.renew(harness.jobs[0])
        == "it reached its start too late, and its rate limit is used up"
    )


def test_a_job_that_is_no_longer_held_is_lost(harness: RenewalHarness) -> None:
    held = harness.jobs[0]
    held.claim = held.claim._replace(token=99)
    assert harness.permits.renew(held) == "this worker no longer holds it"
    assert harness.lost == [held]


def test_a_job_whose_rate_limit_was_removed_starts(harness: RenewalHarness) -> None:
    harness.permits.give(harness.jobs, dated=None)
    harness.rules = {}
    assert harness.permits.renew(harness.jobs[0]) is None
    assert harness.jobs[0].start_by is None


def test_a_job_is_released_while_the_store_is_unavailable(
    harness: RenewalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(harness.store, "redate", away)
    assert harness.permits.renew(harness.jobs[0]) == "its start under a rate could not be recorded: away"


def test_a_worker_that_is_always_late_releases_the_job(harness: RenewalHarness) -> None:
    answers = [harness.permits.renew(harness.jobs[0]) for _ in range(TRIES + 1)]
    assert answers[:-1] == [None] * TRIES
    assert answers[-1] == "this worker could not start it in time, 10 times in a row"


def test_only_jobs_under_a_rate_limit_are_restricted_to_free_slots(harness: RenewalHarness) -> None:
    harness.store.enqueue([NewJob(new_id(), "call", "{}", limits=(name,)) for name in ("calls", "other")])
    lanes = {lane.limits: lane for lane in harness.store.gates()}
    assert startable([lanes["calls",]], RULES, 10, 3) == 3
    assert startable([lanes["calls",]], RULES, 2, 3) == 2
    assert startable([lanes["other",]], RULES, 10, 3) == 10


# With a worker -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True], ids=["function", "coroutine"])
def test_jobs_under_a_rate_limit_run_in_a_worker(is_async: bool) -> None:
    with App("memory://") as app:

        def plain(n: int) -> int:
            return n

        async def awaited(n: int) -> int:
            return n

        target: Callable[..., Any] = awaited if is_async else plain
        task = app.task(name="call", limits=[Rate(1000, per=SECOND)])(target)
        with app.worker():
            jobs = task.enqueue_many([{"n": number} for number in range(20)])
            assert [job.result(timeout=30) for job in jobs] == list(range(20))
