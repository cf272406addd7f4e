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
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, open_gate, opened

from tidemill import Context, Fixed
from tidemill.domain.states import JobState
from tidemill.engine.exchange import finisher
from tidemill.errors import JobCancelled
from tidemill.tasks.middleware import HookStep

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


def test_buffered_jobs_are_claimed_and_executing_jobs_are_running(harness: Harness) -> None:
    gate = threading.Event()

    @harness.app.task
    async def work(wait: bool) -> None:
        if wait:
            await open_gate(gate)

    quick = [work.enqueue(wait=False) for _ in range(20)]
    with harness.worker(concurrency=2, buffer=20):
        harness.ends(*quick)  # the planner has measured that jobs are short
        jobs = work.enqueue_many([{"wait": True} for _ in range(10)])
        eventually(lambda: Counter(map(harness.state, jobs)) == {S.RUNNING: 2, S.CLAIMED: 8})
        gate.set()
        harness.ends(*jobs)
    assert all(harness.row(job).started_at for job in jobs)


@pytest.mark.parametrize("buffered", [False, True])
def test_the_start_that_was_shown_while_a_job_ran_stays_after_its_end(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, *, buffered: bool
) -> None:
    # Jobs that run for a shorter time may still be recorded with the more exact start of the worker.
    monkeypatch.setattr(finisher, "SEEN", 0.0)
    gate = threading.Event()

    @harness.app.task
    async def work(wait: bool) -> None:
        if wait:
            await open_gate(gate)

    quick = [work.enqueue(wait=False) for _ in range(20)]
    with harness.worker(concurrency=2, buffer=20 if buffered else 0):
        harness.ends(*quick)
        jobs = work.enqueue_many([{"wait": True} for _ in range(4 if buffered else 2)])
        eventually(lambda: Counter(map(harness.state, jobs))[S.RUNNING] == 2)
        shown = {job.id: harness.row(job).started_at for job in jobs if harness.state(job) is S.RUNNING}
        gate.set()
        harness.ends(*jobs)
    assert {job.id: harness.row(job).started_at for job in jobs if job.id in shown} == shown


def test_start_and_end_events_are_published_in_order(harness: Harness) -> None:
    told: list[tuple[str, object, str | None]] = []
    harness.app.events.subscribe("job.*", lambda event: told.append((event.name, event.job_id, event.state)))

    @harness.app.task(retry=Fixed(max_attempts=2, wait=timedelta(milliseconds=500)))
    async def work(good: bool) -> None:
        if not good:
            raise ValueError("bad")

    good, bad = work.enqueue(good=True), work.enqueue(good=False)  # before a worker can start them
    with harness.worker():
        harness.ends(good, bad)
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


def test_a_coroutine_middleware_wraps_every_execution(small: Harness) -> None:
    seen: list[str] = []

    @small.app.middleware(only="execute")
    async def noted(step: HookStep, proceed: Callable[[], Awaitable[Any]]) -> Any:
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


def test_a_job_enqueued_by_a_job_is_its_child(harness: Harness) -> None:
    @harness.app.task
    async def child(number: int) -> int:
        return number

    @harness.app.task
    async def parent() -> None:
        await child.aenqueue(1)

    @harness.app.task
    def other_parent(ctx: Context) -> None:
        with ctx.transaction():
            child.enqueue(2)
            child.enqueue(3)

    with harness.worker():
        jobs = [parent.enqueue(), other_parent.enqueue()]
        harness.ends(*jobs)
        children = [job.children() for job in jobs]
        assert [[each.result(PATIENCE) for each in found] for found in children] == [[1], [2, 3]]
    assert [each.parent_id for found in children for each in found] == [jobs[0].id, jobs[1].id, jobs[1].id]


def test_a_cancelled_job_reports_the_reason(harness: Harness) -> None:
    @harness.app.task
    async def forever() -> None:
        await asyncio.sleep(3600)

    with harness.worker():
        job = forever.enqueue()
        harness.becomes(job, S.RUNNING)
        began = harness.clock.monotonic()
        job.cancel("changed my mind")
        with pytest.raises(JobCancelled, match="changed my mind"):
            job.result(PATIENCE)
        assert harness.clock.monotonic() - began < 4.0  # through the wake-up, not the next heartbeat
