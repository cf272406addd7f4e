"""Tests of the claim loop with a slow, busy or failing store."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, open_gate, opened

from tidemill import Context, Fixed
from tidemill.domain.job import NewJob
from tidemill.domain.records import Pause, PauseKind
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.exchange.held_job import Phase
from tidemill.errors import StoreCorrupt, StoreUnavailable
from tidemill.ids import new_id

S, E = JobState, ExecutionState


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


def counting(harness: Harness) -> tuple[Any, Counter[int]]:
    """A task that counts its executions."""
    ran: Counter[int] = Counter()

    @harness.app.task(name="work")
    async def work(number: int) -> int:
        ran[number] += 1
        await asyncio.sleep(0.002)
        return number

    return work, ran


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# ------------------------------------------------------------------------------------------------- lost answers


@pytest.mark.parametrize("pumps", [1, 2])
@pytest.mark.parametrize("verb", ["claim", "step", "finish", "held", "lanes"])
def test_a_lost_answer_loses_no_job_and_repeats_none(harness: Harness, verb: str, pumps: int) -> None:
    work, ran = counting(harness)
    with harness.runner(concurrency=5, pumps=pumps) as runner:
        harness.ends(work.enqueue(-1))
        harness.line.lose_answer(verb, times=3)
        if verb == "held":
            harness.line.lose_answer("step", "finish", times=1)
        jobs = work.enqueue_many([{"number": number} for number in range(60)])
        rows = harness.ends(*jobs)
        assert runner.wait_empty(PATIENCE)
        assert harness.line.real.held(runner.worker) == []
        assert runner.stats().store_ok
    assert set(ran.values()) == {1}
    assert {row.state for row in rows} == {S.COMPLETED}
    assert {(row.attempt, row.token) for row in rows} == {(1, 1)}
    assert [len(harness.executions(job)) for job in jobs] == [1] * 60


def test_a_job_retried_and_claimed_in_a_step_with_a_lost_answer_continues(small: Harness) -> None:
    begun: list[int] = []

    @small.app.task(retry=Fixed(max_attempts=5, wait=timedelta(0)))
    async def again(ctx: Context) -> int:
        begun.append(ctx.attempt)
        if ctx.attempt < 5:
            raise ValueError("once more")
        return ctx.attempt

    small.line.lose_answer("step", "finish", times=3, when=lambda given: bool(given[0]))
    with small.runner(poll=0.1) as runner:
        job = again.enqueue()
        runner.wake()
        small.becomes(job, S.COMPLETED)
    assert begun == [1, 2, 3, 4, 5]
    assert [execution.state for execution in small.executions(job)] == [E.FAILED] * 4 + [E.SUCCEEDED]


def test_the_log_of_a_job_is_complete_although_writes_at_its_end_failed(small: Harness) -> None:
    @small.app.task
    async def talk(ctx: Context) -> None:
        for number in range(20):
            ctx.log(f"line {number}")
        ctx.progress(0.9, "nearly")

    small.line.refuse("log", "report", "step", "finish", times=6)
    with small.runner():
        job = talk.enqueue()
        (row,) = small.ends(job)
    assert row.state is S.COMPLETED
    assert small.lines(job) == [f"line {number}" for number in range(20)]
    assert row.progress is not None
    assert row.progress.message == "nearly"


# ------------------------------------------------------------------------------------------------------ outages


@pytest.mark.long
def test_an_outage_of_three_seconds_loses_no_job(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    work, ran = counting(harness)
    gate = threading.Event()

    @harness.app.task
    async def long() -> str:
        await open_gate(gate)
        return "long"

    with harness.runner(concurrency=10, poll=0.5) as runner:
        waiting = long.enqueue()
        harness.becomes(waiting, S.RUNNING)
        jobs = work.enqueue_many([{"number": number} for number in range(300)])
        eventually(lambda: len(ran) >= 20)
        harness.line.cut()
        eventually(lambda: not runner.stats().store_ok)
        gate.set()
        threading.Event().wait(3.0)
        harness.line.mend()
        back = harness.clock.monotonic()
        rows = harness.ends(waiting, *jobs)
        assert harness.clock.monotonic() - back < 15.0
        assert runner.wait_empty(PATIENCE)
    assert {row.state for row in rows} == {S.COMPLETED}
    assert set(ran.values()) == {1}
    assert len(warnings(caplog)) <= 6, warnings(caplog)


def test_calls_to_a_busy_store_are_retried_with_few_log_lines(
    small: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    work, ran = counting(small)
    with small.runner(concurrency=5) as runner:
        small.ends(work.enqueue(-1))
        small.line.refuse_busy("claim", "step", "finish", "lanes", "orders", "log", times=40)
        jobs = work.enqueue_many([{"number": number} for number in range(30)])
        small.ends(*jobs)
        assert runner.wait_empty(PATIENCE)
    assert set(ran.values()) == {1}
    assert len(warnings(caplog)) <= 4, warnings(caplog)


@pytest.mark.parametrize("verb", ["lanes", "orders", "claim"])
def test_a_notified_job_is_found_although_the_store_was_busy(small: Harness, verb: str) -> None:
    @small.app.task
    async def work() -> float:
        return small.clock.monotonic()

    with small.runner(poll=60):
        small.ends(work.enqueue())
        small.line.refuse_busy(verb)
        began = small.clock.monotonic()
        job = work.using(queue="new", tenant="new").enqueue()
        small.line.real.notify(["change"])
        small.ends(job)
        assert small.clock.monotonic() - began < 10.0


@pytest.mark.parametrize("kind", [PauseKind.TASK, PauseKind.QUEUE, PauseKind.TENANT, PauseKind.ALL])
def test_after_a_change_notification_pauses_are_read_before_the_next_claim(
    small: Harness, kind: PauseKind
) -> None:
    @small.app.task(name="default")
    async def work() -> None: ...

    with small.runner(poll=60) as runner:
        small.ends(work.enqueue())  # from now on it knows which lanes to request first
        eventually(lambda: runner.quiet)
        small.line.real.pause([Pause(kind, "" if kind is PauseKind.ALL else "default")])
        (job,) = small.line.real.enqueue([NewJob(new_id(), "default")])
        small.line.reset_counts()
        small.line.real.notify(["change", "ready:default"])
        eventually(lambda: small.line.calls_of("lanes") > 0 and runner.quiet)
        assert small.state(job.id) is S.PENDING


def test_a_notification_during_a_claim_is_not_lost(small: Harness) -> None:
    @small.app.task
    async def work() -> None: ...

    with small.runner(poll=60) as runner:
        small.ends(work.enqueue())
        reached, go_on = small.line.hold_up("lanes", late=True)
        runner.wake()
        assert reached.wait(PATIENCE)  # it has read an empty list and has not received it yet
        job = work.using(queue="elsewhere").enqueue()
        runner.wake()
        go_on.set()
        began = small.clock.monotonic()
        small.ends(job)
        assert small.clock.monotonic() - began < 10.0


def test_a_worker_abandoned_while_it_reads_job_details_starts_no_job(small: Harness) -> None:
    ran: list[int] = []

    @small.app.task
    async def work() -> None:
        ran.append(1)

    small.line.refuse("job_starts", times=1e9)
    with small.runner() as runner:
        job = work.using(tags=["detailed"]).enqueue()
        small.becomes(job, S.RUNNING)
        runner.abandon()
        asked = small.line.calls_of("job_starts")
        threading.Event().wait(0.2)
        assert small.line.calls_of("job_starts") == asked
    assert ran == []


def test_job_details_are_read_as_soon_as_the_store_answers(small: Harness) -> None:
    @small.app.task
    async def work(ctx: Context) -> list[str]:
        return list(ctx.job.details.tags)

    small.line.refuse("job_starts", times=2)
    with small.runner():
        assert work.using(tags=["blue"]).enqueue().result(PATIENCE) == ["blue"]


# ------------------------------------------------------------------------------------------- unwritable results


def refusing(id: UUID, error: Exception) -> Any:
    """Make the store fail for every batch that contains this job's own result."""

    def when(given: tuple[Any, ...]) -> bool:
        return any(finish.claim.id == id and finish.result is not None for finish in given[0])

    return {"error": error, "when": when, "times": 1e9}


@pytest.mark.parametrize(
    "error", [StoreCorrupt("it does not fit"), UnicodeEncodeError("utf-8", "x", 0, 1, "no")]
)
@pytest.mark.parametrize("trouble", [False, True])
def test_one_end_that_cannot_be_written_does_not_affect_the_others(
    small: Harness, error: Exception, trouble: bool
) -> None:
    work, ran = counting(small)
    jobs = work.enqueue_many([{"number": number} for number in range(50)])
    bad = jobs[17]
    small.line.refuse("step", "finish", **refusing(bad.id, error))
    if trouble:
        small.line.refuse("held", error=StoreUnavailable("away"))
        small.line.lose_answer("claim")
    with small.runner(concurrency=20) as runner:
        rows = small.ends(*jobs)
        assert runner.wait_empty(PATIENCE)
    assert Counter(row.state for row in rows) == {S.COMPLETED: 49, S.FAILED: 1}
    row = small.row(bad)
    assert row.error is not None
    assert row.error.type == "UnwritableEnd"
    assert set(ran.values()) == {1}


def test_an_end_that_can_never_be_written_is_given_up(
    small: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    work, _ = counting(small)
    bad, good = work.enqueue(1), work.enqueue(2)
    small.line.refuse(
        "step",
        "finish",
        error=StoreCorrupt("never"),
        times=1e9,
        when=lambda given: any(finish.claim.id == bad.id for finish in given[0]),
    )
    with small.runner() as runner:
        small.ends(good)
        assert runner.wait_empty(PATIENCE)
        assert small.ends(work.enqueue(3))[0].state is S.COMPLETED
    assert small.state(bad) is S.RUNNING  # until its worker's lease ends
    assert any("giving up" in text for text in warnings(caplog))


def test_two_ends_of_one_job_are_never_written_together(small: Harness) -> None:
    """A job that was lost and claimed again may end twice before either end is written."""
    seen: list[Any] = []

    @small.app.task
    async def work(ctx: Context) -> str:
        seen.append(ctx.outlet)
        return "done"

    with small.runner() as runner:
        small.ends(work.enqueue())
        (held,) = seen
        reached, go_on = small.line.hold_up("finish", "step")
        other = work.enqueue()
        assert reached.wait(PATIENCE)
        twin = seen[1]
        for late in (held, held, twin):
            late.phase = Phase.OPEN
            runner._ended(late, None)
        go_on.set()
        small.ends(other)
        assert small.ends(work.enqueue())[0].state is S.COMPLETED
        assert runner.wait_empty(PATIENCE)
    assert small.state(other) is S.COMPLETED
