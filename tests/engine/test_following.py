"""Tests of jobs enqueued with the completion of another."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.following_kit import stored
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, open_gate, opened

from tidemill import Context, Fixed, PermanentError, Snooze
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import JobState
from tidemill.tasks.middleware import HookStep

S = JobState
AT_ONCE = Fixed(wait=timedelta(0), max_attempts=3)


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


# Transactions across an await ------------------------------------------------------------------------------------------


def test_a_block_held_across_an_await_does_not_affect_other_jobs(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    gate = threading.Event()
    runs: Counter[int] = Counter()

    @harness.app.task
    async def noop(n: int) -> None:
        runs[n] += 1

    @harness.app.task
    async def holds(ctx: Context) -> None:
        with ctx.transaction():
            await noop.aenqueue(n=-1)
            await open_gate(gate)

    with caplog.at_level(logging.WARNING, "tidemill"), harness.worker():
        holder = holds.enqueue()
        eventually(lambda: harness.state(holder) is S.RUNNING)
        jobs = noop.enqueue_many([{"n": n} for n in range(1_500)])
        harness.ends(*jobs)
        assert runs[-1] == 0
        gate.set()
        harness.ends(holder)
        eventually(lambda: runs[-1] == 1)
    assert set(runs.values()) == {1}
    assert [record.message for record in caplog.records] == []


@pytest.mark.parametrize("bulk", [False, True])
def test_a_job_enqueued_by_another_coroutine_survives_a_block_that_raises(
    harness: Harness, bulk: bool
) -> None:
    entered, enqueued = threading.Event(), threading.Event()

    @harness.app.task
    async def following(by: str) -> str:
        return by

    @harness.app.task(retry=None)
    async def rolls_back(ctx: Context) -> None:
        with ctx.transaction():
            following.enqueue(by="the one that raises")
            entered.set()
            await open_gate(enqueued)
            raise PermanentError("no")

    @harness.app.task
    async def bystander() -> list[str]:
        await open_gate(entered)
        jobs = (
            following.enqueue_many([{"by": "bystander"}] * 2) if bulk else [following.enqueue(by="bystander")]
        )
        enqueued.set()
        return [str(job.id) for job in jobs]

    with harness.worker():
        first, second = rolls_back.enqueue(), bystander.enqueue()
        ids = second.result(PATIENCE)
        harness.ends(first)
        assert [job.args for job in stored(harness, "following")] == ['{"by":"bystander"}'] * len(ids)
        assert sorted(str(job.id) for job in stored(harness, "following")) == sorted(ids)


def test_aenqueue_inside_a_block_is_written_with_the_completion(harness: Harness) -> None:
    gate = threading.Event()

    @harness.app.task
    async def following(n: int) -> int:
        return n

    @harness.app.task
    async def parent(ctx: Context) -> list[str]:
        async with ctx.transaction():
            one = await following.aenqueue(n=1)
            more = await following.aenqueue_many([{"n": 2}, {"n": 3}])
        await open_gate(gate)
        return [str(job.id) for job in (one, *more)]

    with harness.worker():
        job = parent.enqueue()
        eventually(lambda: harness.state(job) is S.RUNNING)
        assert stored(harness, "following") == []
        gate.set()
        ids = job.result(PATIENCE)
        eventually(lambda: [each.state for each in stored(harness, "following")] == [S.COMPLETED] * 3)
    assert sorted(str(each.id) for each in stored(harness, "following")) == sorted(ids)


# Written with the completion, or not at all --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_a_job_that_fails_after_its_block_leaves_no_child_until_a_retry_succeeds(
    harness: Harness, kind: str
) -> None:
    @harness.app.task
    def child(attempt: int) -> int:
        return attempt

    def work(ctx: Context) -> None:
        with ctx.transaction():
            child.enqueue(attempt=ctx.attempt)
        ctx.then(child, attempt=-ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("not yet")

    @harness.app.task(retry=AT_ONCE, name="parent")
    def function(ctx: Context) -> None:
        work(ctx)

    @harness.app.task(retry=AT_ONCE, name="aparent")
    async def coroutine(ctx: Context) -> None:
        work(ctx)

    with harness.worker():
        job = (function if kind == "function" else coroutine).enqueue()
        harness.ends(job)
        assert (harness.state(job), harness.row(job).attempt) == (S.COMPLETED, 3)
        eventually(lambda: [each.state for each in stored(harness, "child")] == [S.COMPLETED] * 2)
    assert [each.args for each in stored(harness, "child")] == ['{"attempt":3}', '{"attempt":-3}']


def test_then_returns_a_handle_whose_job_exists_after_the_completion(harness: Harness) -> None:
    gate = threading.Event()

    @harness.app.task
    def following(n: int) -> int:
        return n

    @harness.app.task
    async def parent(ctx: Context) -> str:
        job = ctx.then(following.using(priority=7, tags=["t"]), n=4)
        await open_gate(gate)
        return str(job.id)

    with harness.worker():
        job = parent.using(correlation_id="c-1").enqueue()
        eventually(lambda: harness.state(job) is S.RUNNING)
        gate.set()
        child = harness.app.jobs.get(job.result(PATIENCE))
        assert child.result(PATIENCE) == 4
    row = harness.row(child.id)
    assert (row.details.parent_id, row.details.correlation_id, row.priority) == (job.id, "c-1", 7)


@pytest.mark.parametrize("ending", ["fails", "snoozes", "times out", "is released"])
def test_an_execution_that_does_not_complete_writes_no_following_jobs(harness: Harness, ending: str) -> None:
    @harness.app.task
    def following() -> None: ...

    @harness.app.task(retry=None, timeout=timedelta(seconds=0.2 if ending == "times out" else 60))
    async def parent(ctx: Context) -> None:
        ctx.then(following)
        match ending:
            case "fails":
                raise PermanentError("no")
            case "snoozes":
                raise Snooze(timedelta(hours=1))
            case _:
                await asyncio.Event().wait()

    expected = {"fails": S.FAILED, "snoozes": S.SCHEDULED, "times out": S.TIMED_OUT, "is released": S.PENDING}
    with harness.worker(grace=0.1):
        job = parent.enqueue()
        eventually(lambda: harness.state(job) is (S.RUNNING if ending == "is released" else expected[ending]))
    assert harness.state(job) is expected[ending]
    assert stored(harness, "following") == []


def test_a_lost_answer_neither_loses_nor_repeats_following_jobs(harness: Harness) -> None:
    @harness.app.task
    def following(n: int) -> int:
        return n

    @harness.app.task
    def parent(ctx: Context, n: int) -> None:
        ctx.then(following, n=n)

    harness.line.lose_answer(
        "finish", "step", times=3, when=lambda given: any(item.then for item in given[0])
    )
    jobs = parent.enqueue_many([{"n": n} for n in range(20)])
    with harness.worker():
        harness.ends(*jobs)
        eventually(lambda: Counter(each.state for each in stored(harness, "following")) == {S.COMPLETED: 20})
    assert Counter(each.details.parent_id for each in stored(harness, "following")) == dict.fromkeys(
        (job.id for job in jobs), 1
    )


# Visible effects -----------------------------------------------------------------------------------------------------------


def test_middleware_sees_the_call_and_events_follow_once_the_job_is_written(harness: Harness) -> None:
    seen: list[str] = []

    @harness.app.middleware(only="enqueue")
    def noted(step: HookStep, proceed: Any) -> Any:
        seen.append(f"enqueue {step.task}")
        return proceed()

    for name in ("job.enqueued", "job.finished"):
        harness.app.events.on(name)(lambda event: seen.append(f"{event.name} {event.task}"))

    @harness.app.task
    def following() -> None: ...

    @harness.app.task
    async def parent(ctx: Context) -> None:
        with ctx.transaction():
            await following.aenqueue()
        seen.append("the block has ended")

    job = parent.enqueue()
    with harness.worker():
        harness.ends(job)
        eventually(lambda: seen[-1] == "job.finished following")
    assert seen == [
        "enqueue parent",
        "job.enqueued parent",
        "enqueue following",
        "the block has ended",
        "job.finished parent",
        "job.enqueued following",
        "job.finished following",
    ]


def test_an_audited_task_is_recorded_with_the_completion(harness: Harness) -> None:
    @harness.app.task(audit=True)
    def following() -> None: ...

    @harness.app.task(retry=AT_ONCE)
    def parent(ctx: Context) -> str:
        job = ctx.then(following)
        if ctx.attempt == 1:
            raise ValueError("once more")
        return str(job.id)

    with harness.worker():
        id = parent.enqueue().result(PATIENCE)
    records = harness.line.real.audit(tenant=ALL_TENANTS)
    assert [record.entry.subject for record in records] == [f"job:{id}"]


def test_idle_workers_of_another_queue_are_woken_by_the_completion(harness: Harness) -> None:
    @harness.app.task(queue="second")
    def following() -> int:
        return 1

    @harness.app.task(queue="first")
    def parent(ctx: Context) -> str:
        return str(ctx.then(following).id)

    # The poll interval is long, so only a wake-up brings the second worker to the job in time.
    with harness.worker(queues=["second"], poll=300), harness.worker(queues=["first"], poll=300):
        job = harness.app.jobs.get(parent.enqueue().result(PATIENCE))
        assert job.result(PATIENCE) == 1


def test_a_tick_and_the_test_runner_write_following_jobs_too(harness: Harness) -> None:
    @harness.app.task
    def following(n: int) -> int:
        return n

    @harness.app.task
    async def parent(ctx: Context, n: int) -> None:
        with ctx.transaction():
            following.enqueue(n=n)

    parent.enqueue(n=1)
    with harness.app.testing() as testing:
        assert testing.drain().completed == 2
    parent.enqueue(n=2)
    assert harness.app.tick(10.0, children=0).processed == 2
    assert [each.state for each in stored(harness, "following")] == [S.COMPLETED] * 2


# Refused additions -----------------------------------------------------------------------------------------------------


def test_a_refused_wait_fails_its_own_job_alone(harness: Harness) -> None:
    runs: Counter[int] = Counter()
    other: dict[int, Any] = {}

    @harness.app.task
    async def plain(n: int) -> None:
        runs[n] += 1

    @harness.app.task(retry=AT_ONCE)
    async def waits(ctx: Context, n: int) -> None:
        await ctx.ajoin(other[n])

    pair = waits.enqueue_many([{"n": 0}, {"n": 1}])
    other[0], other[1] = pair[1], pair[0]
    jobs = plain.enqueue_many([{"n": n} for n in range(20)])
    with harness.runner(concurrency=30) as runner:
        rows = harness.ends(*jobs, *pair)
        assert runner.wait_empty(PATIENCE)
    assert [row.state for row in rows[:20]] == [S.COMPLETED] * 20
    assert set(runs.values()) == {1}
    errors = {row.error.type: row.error.message for row in rows[20:] if row.error is not None}
    # The store refuses the second wait of the circle; the first job then waits for one that has failed.
    assert {row.state for row in rows[20:]} == {S.FAILED, S.DEAD_LETTERED}
    assert "which waits for it" in errors["UnwritableEnd"]
