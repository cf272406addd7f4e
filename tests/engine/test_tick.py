"""``app.tick``: what is due is done within a budget of time, and nothing stays behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.engine.mill import PATIENCE, STORES, Mill, Place, a_place, opened

from tidemill import Context, Fixed
from tidemill.domain.cluster import WorkerState
from tidemill.domain.states import JobState
from tidemill.engine.worker import Tick
from tidemill.errors import StoreUnavailable

S = JobState


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def mill(place: Place, tmp_path: Path) -> Iterator[Mill]:
    with place(tmp_path) as url, opened(url) as mill:
        yield mill


@pytest.fixture
def small() -> Iterator[Mill]:
    with opened() as mill:
        yield mill


def test_a_tick_does_what_is_due_and_nothing_else(mill: Mill) -> None:
    @mill.app.task
    def in_thread(number: int) -> int:
        return number

    @mill.app.task
    async def on_loop(number: int) -> int:
        await asyncio.sleep(0.01)
        return number

    @mill.app.task(retry=Fixed(max_attempts=2, wait=timedelta(hours=1)))
    async def fail() -> None:
        raise ValueError("no")

    jobs = [task.enqueue(number) for number in range(20) for task in (in_thread, on_loop)]
    bad = fail.enqueue()
    later = in_thread.using(delay=timedelta(hours=1)).enqueue(99)
    due = in_thread.using(delay=timedelta(milliseconds=1)).enqueue(100)
    threading.Event().wait(0.01)
    began = mill.clock.monotonic()
    assert mill.app.tick(PATIENCE, children=0) == Tick(processed=42, errors=1)
    assert mill.clock.monotonic() - began < 15.0  # as soon as it is done
    assert {mill.state(job) for job in (*jobs, due)} == {S.COMPLETED}
    assert (mill.state(bad), mill.state(later)) == (S.SCHEDULED, S.SCHEDULED)
    assert {known.state for known in mill.line.real.workers()} == {WorkerState.STOPPED}
    assert mill.app.tick(PATIENCE, children=0) == Tick(0, 0)


def test_what_jobs_enqueue_is_due_in_the_same_tick(mill: Mill) -> None:
    @mill.app.task
    async def chain(left: int) -> None:
        if left:
            await chain.aenqueue(left - 1)

    chain.enqueue(5)
    assert mill.app.tick(PATIENCE, children=0).processed == 6


def test_a_budget_that_is_used_up_ends_the_tick_and_hands_back_what_runs(small: Mill) -> None:
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
    small.app.tick(0.5, children=0, patience=0.5)
    assert 0.4 <= small.clock.monotonic() - began < 6.0
    for job in jobs:
        row = small.row(job)
        assert (row.state, row.attempt, row.crashes) == (S.PENDING, 0, 0)


def test_only_the_queues_asked_for_have_their_tick(small: Mill) -> None:
    @small.app.task
    def work() -> None: ...

    mail, other = work.using(queue="mail").enqueue(), work.enqueue()
    assert small.app.tick(PATIENCE, queues="mail", children=0).processed == 1
    assert (small.state(mail), small.state(other)) == (S.COMPLETED, S.PENDING)


def test_a_store_that_is_away_is_said_so(small: Mill) -> None:
    small.line.cut()
    with pytest.raises(StoreUnavailable):
        small.app.tick(1.0, children=0)


def test_two_ticks_at_once_share_the_work(mill: Mill) -> None:
    ran: list[int] = []

    @mill.app.task
    def work(number: int) -> None:
        ran.append(number)

    work.enqueue_many([{"number": number} for number in range(200)])
    ticks: list[Tick] = []
    threads = [
        threading.Thread(target=lambda: ticks.append(mill.app.tick(PATIENCE, children=0))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    assert sum(tick.processed for tick in ticks) == 200
    assert sorted(ran) == list(range(200))
