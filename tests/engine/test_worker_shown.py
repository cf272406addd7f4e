"""Tests of job states, events, middleware, children and cancels."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.mill import PATIENCE, STORES, Mill, Place, a_place, open_gate, opened

from tidemill import Context, Fixed
from tidemill.domain.states import JobState
from tidemill.errors import JobCancelled
from tidemill.tasks.middleware import Step

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


def test_buffered_jobs_are_claimed_and_executing_jobs_are_running(mill: Mill) -> None:
    gate = threading.Event()

    @mill.app.task
    async def work(wait: bool) -> None:
        if wait:
            await open_gate(gate)

    quick = [work.enqueue(wait=False) for _ in range(20)]
    with mill.worker(concurrency=2, buffer=20):
        mill.ends(*quick)  # the planner has measured that jobs are short
        jobs = work.enqueue_many([{"wait": True} for _ in range(10)])
        eventually(lambda: Counter(map(mill.state, jobs)) == {S.RUNNING: 2, S.CLAIMED: 8})
        gate.set()
        mill.ends(*jobs)
    assert all(mill.row(job).started_at for job in jobs)


def test_start_and_end_events_are_published_in_order(mill: Mill) -> None:
    told: list[tuple[str, object, str | None]] = []
    mill.app.events.subscribe("job.*", lambda event: told.append((event.name, event.job_id, event.state)))

    @mill.app.task(retry=Fixed(max_attempts=2, wait=timedelta(milliseconds=500)))
    async def work(good: bool) -> None:
        if not good:
            raise ValueError("bad")

    good, bad = work.enqueue(good=True), work.enqueue(good=False)  # before a worker can start them
    with mill.worker():
        mill.ends(good, bad)
    of = {job: [(name, state) for name, id, state in told if id == job.id] for job in (good, bad)}
    assert of[good] == [
        ("job.enqueued", S.PENDING),
        ("job.started", S.RUNNING),
        ("job.finished", S.COMPLETED),
    ]
    assert of[bad] == [
        ("job.enqueued", S.PENDING),
        ("job.started", S.RUNNING),
        ("job.put_off", S.SCHEDULED),
        ("job.started", S.RUNNING),
        ("job.finished", S.DEAD_LETTERED),
    ]


def test_a_coroutine_middleware_wraps_every_execution(small: Mill) -> None:
    seen: list[str] = []

    @small.app.middleware(only="execute")
    async def noted(step: Step, proceed: Callable[[], Awaitable[Any]]) -> Any:
        answer = await proceed()
        seen.append(f"{step.kind} {step.task} {answer}")
        return answer

    @small.app.task(name="sync")
    def sync() -> int:
        return 1

    @small.app.task(name="async")
    async def coroutine() -> int:
        return 2

    with small.worker():
        assert [sync.enqueue().result(PATIENCE), coroutine.enqueue().result(PATIENCE)] == [1, 2]
    assert sorted(seen) == ["execute async 2", "execute sync 1"]


def test_a_job_enqueued_by_a_job_is_its_child(mill: Mill) -> None:
    @mill.app.task
    async def child(number: int) -> int:
        return number

    @mill.app.task
    async def parent() -> None:
        await child.aenqueue(1)

    @mill.app.task
    def other_parent(ctx: Context) -> None:
        with ctx.transaction():
            child.enqueue(2)
            child.enqueue(3)

    with mill.worker():
        jobs = [parent.enqueue(), other_parent.enqueue()]
        mill.ends(*jobs)
        children = [job.children() for job in jobs]
        assert [[each.result(PATIENCE) for each in found] for found in children] == [[1], [2, 3]]
    assert [each.parent_id for found in children for each in found] == [jobs[0].id, jobs[1].id, jobs[1].id]


def test_a_cancelled_job_reports_the_reason(mill: Mill) -> None:
    @mill.app.task
    async def forever() -> None:
        await asyncio.sleep(3600)

    with mill.worker():
        job = forever.enqueue()
        mill.becomes(job, S.RUNNING)
        began = mill.clock.monotonic()
        job.cancel("changed my mind")
        with pytest.raises(JobCancelled, match="changed my mind"):
            job.result(PATIENCE)
        assert mill.clock.monotonic() - began < 4.0  # through the wake-up, not the next heartbeat
