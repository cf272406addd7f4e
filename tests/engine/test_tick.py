"""Tests of ``app.tick``: due jobs run within a time budget."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, opened

from tidemill import Context, Fixed
from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import JobState
from tidemill.engine.embedded_worker import Tick
from tidemill.errors import StoreUnavailable
from tidemill.ids import new_id

S = JobState


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness(place: Place, tmp_path: Path) -> Iterator[Harness]:
    with place(tmp_path) as url, opened(url) as harness:
        yield harness


@pytest.fixture
def small() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


def test_a_tick_runs_due_jobs_and_nothing_else(harness: Harness) -> None:
    @harness.app.task
    def in_thread(number: int) -> int:
        return number

    @harness.app.task
    async def on_loop(number: int) -> int:
        await asyncio.sleep(0.01)
        return number

    @harness.app.task(retry=Fixed(max_attempts=2, wait=timedelta(hours=1)))
    async def fail() -> None:
        raise ValueError("no")

    jobs = [task.enqueue(number) for number in range(20) for task in (in_thread, on_loop)]
    bad = fail.enqueue()
    later = in_thread.using(delay=timedelta(hours=1)).enqueue(99)
    due = in_thread.using(delay=timedelta(milliseconds=1)).enqueue(100)
    threading.Event().wait(0.01)
    began = harness.clock.monotonic()
    assert harness.app.tick(PATIENCE, children=0) == Tick(processed=42, errors=1)
    assert harness.clock.monotonic() - began < 15.0  # it returns as soon as it is done
    assert {harness.state(job) for job in (*jobs, due)} == {S.COMPLETED}
    assert (harness.state(bad), harness.state(later)) == (S.SCHEDULED, S.SCHEDULED)
    assert {known.state for known in harness.line.real.workers()} == {WorkerState.STOPPED}
    assert harness.app.tick(PATIENCE, children=0) == Tick(0, 0)


def test_jobs_enqueued_by_jobs_run_in_the_same_tick(harness: Harness) -> None:
    @harness.app.task
    async def chain(left: int) -> None:
        if left:
            await chain.aenqueue(left - 1)

    chain.enqueue(5)
    assert harness.app.tick(PATIENCE, children=0).processed == 6


def test_an_exhausted_budget_ends_the_tick_and_releases_running_jobs(small: Harness) -> None:
    @small.app.task
    async def forever() -> None:
        await asyncio.sleep(3600)

    @small.app.task
    def polite(ctx: Context) -> None:
        while True:
            ctx.check()
            threading.Event().wait(0.01)

    jobs = [forever.enqueue(), polite.enqueue()]
    began = small.clock.monotonic()
    assert small.app.tick(0.5, children=0, patience=0.5) == Tick(processed=0, errors=0)
    assert 0.4 <= small.clock.monotonic() - began < 6.0
    for job in jobs:
        row = small.row(job)
        assert (row.state, row.attempt, row.crashes) == (S.PENDING, 0, 0)


def test_a_tick_serves_only_the_given_queues(small: Harness) -> None:
    @small.app.task
    def work() -> None: ...

    mail, other = work.using(queue="mail").enqueue(), work.enqueue()
    assert small.app.tick(PATIENCE, queues="mail", children=0).processed == 1
    assert (small.state(mail), small.state(other)) == (S.COMPLETED, S.PENDING)


def test_a_tick_raises_if_the_store_is_unavailable(small: Harness) -> None:
    small.line.cut()
    with pytest.raises(StoreUnavailable):
        small.app.tick(1.0, children=0)


def test_two_concurrent_ticks_share_the_work(harness: Harness) -> None:
    ran: list[int] = []

    @harness.app.task
    def work(number: int) -> None:
        ran.append(number)

    work.enqueue_many([{"number": number} for number in range(200)])
    ticks: list[Tick] = []
    threads = [
        threading.Thread(target=lambda: ticks.append(harness.app.tick(PATIENCE, children=0)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert sum(tick.processed for tick in ticks) == 200
    assert sorted(ran) == list(range(200))


def test_a_tick_waits_for_the_second_check_of_a_dead_worker_and_runs_its_jobs(small: Harness) -> None:
    @small.app.task
    def work() -> str:
        return "done"

    job = work.enqueue()
    store = small.line.real
    dead = store.register(Worker(new_id(), "dead"), lease=timedelta(milliseconds=200))
    assert len(store.claim(ClaimRequest(dead.id, store.lanes(), 1))) == 1
    threading.Event().wait(0.3)  # its lease expires, by the real clock
    quick = {"beat": 0.2, "expiry": 1.5, "children": 0}
    small.app.tick(0.05, **quick)
    assert small.state(job) is S.RUNNING  # too short for a second check
    small.app.tick(PATIENCE, **quick)
    assert small.state(job) is S.COMPLETED
