"""Tests of how jobs end: retries, signals, reviews, delays and expiry."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, opened

from tidemill import Cancel, Context, Fixed, PermanentError, Retry, Review, Snooze
from tidemill.domain.states import ExecutionState, JobState
from tidemill.errors import JobFailed
from tidemill.tasks.events import Event

S, E = JobState, ExecutionState
SOON = timedelta(milliseconds=50)


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


# ------------------------------------------------------------------------------------------- retries and signals


def test_a_failing_job_is_retried_after_its_wait_and_finally_dead_lettered(harness: Harness) -> None:
    begun: list[float] = []

    @harness.app.task(retry=Fixed(max_attempts=3, wait=timedelta(milliseconds=300)))
    def fail() -> None:
        begun.append(harness.clock.monotonic())
        raise ValueError("no")

    with harness.worker():
        job = fail.enqueue()
        with pytest.raises(JobFailed):
            job.result(PATIENCE)
    assert len(begun) == 3
    assert all(later - earlier >= 0.25 for earlier, later in pairwise(begun))
    row = harness.row(job)
    assert (row.state, row.attempt) == (S.DEAD_LETTERED, 3)
    assert row.error is not None
    assert row.error.type == "ValueError"
    assert [execution.state for execution in harness.executions(job)] == [E.FAILED] * 3


def test_the_exception_of_a_task_decides_its_next_state(harness: Harness) -> None:
    seen: Counter[str] = Counter()

    @harness.app.task
    def permanent() -> None:
        raise PermanentError("never again")

    @harness.app.task(retry=Fixed(max_attempts=2, wait=timedelta(hours=1)))
    def again() -> str:
        seen["again"] += 1
        if seen["again"] == 1:
            raise Retry(after=SOON)
        return "second"

    @harness.app.task
    async def snoozed(ctx: Context) -> int:
        seen["snoozed"] += 1
        if seen["snoozed"] < 3:
            raise Snooze(SOON)
        return ctx.attempt

    @harness.app.task
    async def cancelled() -> None:
        raise Cancel("not needed")

    @harness.app.task
    def nasty() -> None:
        raise SystemExit("out")

    with harness.worker():
        jobs = {task: task.enqueue() for task in (permanent, again, snoozed, cancelled, nasty)}
        assert jobs[again].result(PATIENCE) == "second"
        assert jobs[snoozed].result(PATIENCE) == 1  # snoozed twice, and no attempt was used
        harness.ends(jobs[permanent], jobs[cancelled])
        harness.becomes(jobs[nasty], S.SCHEDULED)
    row = harness.row(jobs[permanent])
    assert (row.state, row.attempt) == (S.FAILED, 1)
    assert (harness.row(jobs[again]).attempt, harness.row(jobs[snoozed]).attempt) == (2, 1)
    row = harness.row(jobs[cancelled])
    assert (row.state, row.reason) == (S.CANCELLED, "not needed")


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_a_reason_that_no_store_can_hold_is_replaced_and_the_signal_applies(
    harness: Harness, text: str
) -> None:
    @harness.app.task
    def cancelled() -> None:
        raise Cancel(text)

    @harness.app.task
    def snoozed() -> None:
        raise Snooze(timedelta(hours=1), text)

    @harness.app.task
    def reviewed() -> None:
        raise Review(text)

    with harness.worker():
        jobs = [task.enqueue() for task in (cancelled, snoozed, reviewed)]
        for job, state in zip(jobs, (S.CANCELLED, S.SCHEDULED, S.REVIEW_NEEDED), strict=True):
            harness.becomes(job, state)
    assert {harness.row(job).reason for job in jobs} <= {"a?b", "a\ufffdb"}


def test_a_review_waits_for_a_decision(harness: Harness) -> None:
    @harness.app.task
    def ask(number: int) -> None:
        raise Review("look at this", output={"number": number})

    with harness.worker():
        first, second = ask.enqueue(1), ask.enqueue(2)
        for job in (first, second):
            harness.becomes(job, S.REVIEW_NEEDED)
        first.approve("fine")
        second.reject("no")
    assert (harness.state(first), harness.row(first).result) == (S.COMPLETED, '{"number":1}')
    assert harness.state(second) is S.FAILED


def test_a_retry_policy_that_raises_does_not_stop_other_jobs(small: Harness) -> None:
    class Broken:
        max_attempts = 3

        def delay(self, attempt: int, jitter: float) -> timedelta:
            raise ZeroDivisionError

    @small.app.task(retry=Broken())
    def fail() -> None:
        raise ValueError("no")

    @small.app.task
    def fine() -> str:
        return "fine"

    with small.worker():
        job = fail.enqueue()
        small.becomes(job, S.SCHEDULED)
        assert fine.enqueue().result(PATIENCE) == "fine"


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 100_000])
def test_the_end_of_a_job_is_written_whatever_text_it_logs_or_raises(harness: Harness, text: str) -> None:
    @harness.app.task(retry=None)
    def fail(ctx: Context) -> None:
        ctx.log(text, detail=text)
        ctx.progress(0.5, text)
        raise ValueError(text)

    @harness.app.task(retry=None)
    async def answer(ctx: Context) -> str:
        ctx.log(text)
        return text

    with harness.worker():
        failed, answered = fail.enqueue(), answer.enqueue()
        assert harness.ends(failed)[0].state is S.FAILED
        [answer_end] = harness.ends(answered)
    # Each job has its own line, and a failed attempt adds one: a result cannot contain a lone surrogate.
    assert len(harness.lines(failed)) == 2
    assert len(harness.lines(answered)) == (1 if answer_end.state is S.COMPLETED else 2)
    assert (answer_end.state is S.COMPLETED) == (text != "\ud800")


# ----------------------------------------------------------------------------------------------------- time


def test_delayed_jobs_run_when_they_are_due(harness: Harness) -> None:
    began: dict[str, float] = {}

    @harness.app.task
    def note(name: str) -> None:
        began[name] = harness.clock.monotonic()

    with harness.worker():
        at = harness.clock.monotonic()
        later = note.using(delay=timedelta(seconds=1)).enqueue("later")
        sooner = note.using(delay=timedelta(seconds=0.4)).enqueue("sooner")
        harness.ends(later, sooner)
    assert 0.35 <= began["sooner"] - at < began["later"] - at
    assert 0.95 <= began["later"] - at < 4.5  # sooner than a poll would find it


def test_an_expired_job_is_cancelled_and_never_started(harness: Harness) -> None:
    ran: list[str] = []
    told: list[Event] = []
    harness.app.events.subscribe("job.*", told.append)

    @harness.app.task
    def work(name: str) -> None:
        ran.append(name)

    gone = work.using(expires=timedelta(milliseconds=1)).enqueue("gone")
    threading.Event().wait(0.01)
    with harness.runner():  # without the duty that cancels expired jobs too, and might be first
        fresh = work.using(expires=timedelta(minutes=5)).enqueue("fresh")
        harness.ends(gone, fresh)
    assert ran == ["fresh"]
    assert (harness.state(gone), harness.row(gone).reason) == (S.CANCELLED, "expired")
    told_of = [event.name for event in told if event.job_id == gone.id]
    assert told_of == ["job.enqueued", "job.finished"]
