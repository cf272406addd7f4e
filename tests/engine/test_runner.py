"""Tests of the runner: timeouts, cancels, and jobs that do not stop."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE, Harness, open_gate, opened

from tidemill import Context, Fixed, Snooze
from tidemill.domain.cluster import CancelRequest
from tidemill.domain.states import ExecutionState, JobState

S, E = JobState, ExecutionState
SHORT = timedelta(milliseconds=200)


@pytest.fixture
def harness() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that is set at the latest when the test ends, so that no thread waits forever."""
    gate = threading.Event()
    yield gate
    gate.set()


def took(harness: Harness, job: Any) -> float:
    """Seconds from the start of the last execution to its recorded end."""
    last = harness.executions(job)[-1]
    assert last.started_at is not None
    assert last.finished_at is not None
    return (last.finished_at - last.started_at).total_seconds()


# ----------------------------------------------------------------------------------------------------- timeouts


def test_a_coroutine_past_its_timeout_is_cancelled_and_retried(harness: Harness) -> None:
    stopped: list[int] = []

    @harness.app.task(timeout=SHORT, retry=Fixed(max_attempts=2, wait=timedelta(0)))
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stopped.append(ctx.attempt)
            raise

    with harness.runner():
        job = slow.enqueue()
        (row,) = harness.ends(job)
    assert stopped == [1, 2]
    assert row.state is S.TIMED_OUT
    assert [execution.state for execution in harness.executions(job)] == [E.TIMED_OUT, E.TIMED_OUT]
    assert 0.2 <= took(harness, job) < 2.0


def test_a_coroutine_that_swallows_its_cancellation_is_recorded_as_timed_out(
    harness: Harness, gate: threading.Event
) -> None:
    ended = threading.Event()

    @harness.app.task(timeout=SHORT, retry=None)
    async def stubborn() -> str:
        while not gate.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        ended.set()
        return "too late"

    @harness.app.task
    async def neighbour() -> str:
        return "fine"

    with harness.runner() as runner:
        job = stubborn.enqueue()
        (row,) = harness.ends(job)
        assert row.state is S.TIMED_OUT
        assert 0.5 <= took(harness, job) < 3.0  # the timeout and the patience
        assert neighbour.enqueue().result(PATIENCE) == "fine"
        assert runner.stats().running == 1  # it still has its slot
        gate.set()
        assert ended.wait(PATIENCE)
        eventually(lambda: runner.stats().running == 0)
        assert harness.row(job) == row


def test_a_thread_that_checks_its_context_stops_in_time(harness: Harness) -> None:
    @harness.app.task(timeout=SHORT, retry=None)
    def polite(ctx: Context) -> None:
        while True:
            ctx.check()
            threading.Event().wait(0.01)

    with harness.runner():
        job = polite.enqueue()
        (row,) = harness.ends(job)
    assert row.state is S.TIMED_OUT
    assert row.reason == "exceeded timeout of 0.2 seconds"
    assert 0.15 <= took(harness, job) < 2.0


def test_a_thread_that_does_not_stop_is_recorded_and_its_slot_is_replaced(
    harness: Harness, gate: threading.Event
) -> None:
    ended, stuck = threading.Event(), threading.Event()
    said: list[str] = []

    @harness.app.task(timeout=SHORT, retry=None)
    def stubborn() -> str:
        gate.wait(PATIENCE)
        ended.set()
        return "too late"

    @harness.app.task
    def neighbour() -> str:
        return "fine"

    def on_stuck(reason: str) -> None:
        said.append(reason)
        stuck.set()

    with harness.runner(threads=1, on_stuck=on_stuck) as runner:
        job = stubborn.enqueue()
        (row,) = harness.ends(job)
        assert row.state is S.TIMED_OUT
        assert 0.5 <= took(harness, job) < 3.0
        assert stuck.wait(PATIENCE)
        assert str(job.id) in said[0]
        assert runner.stats().stuck == said[0]
        assert neighbour.enqueue().result(PATIENCE) == "fine"
        gate.set()
        assert ended.wait(PATIENCE)
        assert neighbour.enqueue().result(PATIENCE) == "fine"
        assert harness.row(job) == row
        eventually(lambda: runner.stats().free == 1)


def test_a_thread_that_has_returned_is_not_given_up(harness: Harness) -> None:
    seen: list[Any] = []

    @harness.app.task
    def quick(ctx: Context) -> None:
        seen.append(ctx.outlet)

    with harness.runner(threads=1) as runner:
        harness.ends(quick.enqueue())
        (held,) = seen
        held.timed_out = True
        runner.give_up(held)  # the watch checked a moment too early
        harness.ends(quick.enqueue())
        eventually(lambda: runner.stats().running == 0)
        assert runner.stats().free == 1


# ------------------------------------------------------------------------------------------------------ cancels


def test_a_running_coroutine_is_cancelled_with_the_given_reason(harness: Harness) -> None:
    @harness.app.task
    async def forever() -> None:
        await asyncio.sleep(3600)

    with harness.runner() as runner:
        job = forever.enqueue()
        harness.becomes(job, S.RUNNING)
        harness.cancel(runner, job, "enough")
        (row,) = harness.ends(job)
    assert (row.state, row.reason) == (S.CANCELLED, "enough")
    assert harness.executions(job)[-1].state is E.CANCELLED


@pytest.mark.parametrize("means", ["check", "track", "cancelled"])
def test_a_thread_sees_in_its_context_that_it_is_cancelled(harness: Harness, means: str) -> None:
    begun = threading.Event()

    def numbers() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1
            threading.Event().wait(0.005)

    @harness.app.task
    def work(ctx: Context) -> str:
        begun.set()
        for _ in ctx.track(numbers()) if means == "track" else numbers():
            if means == "check":
                ctx.check()
            if means == "cancelled" and ctx.cancelled:
                return "stopped half way"
        return "never"

    with harness.runner() as runner:
        job = work.enqueue()
        assert begun.wait(PATIENCE)
        harness.cancel(runner, job, "enough")
        (row,) = harness.ends(job)
    if means == "cancelled":  # it returned, so it is completed
        assert (row.state, row.result) == (S.COMPLETED, '"stopped half way"')
    else:
        assert (row.state, row.reason) == (S.CANCELLED, "enough")


@pytest.mark.parametrize("lane", ["threads", "concurrency"])
def test_a_cancelled_job_in_the_buffer_never_starts(
    harness: Harness, gate: threading.Event, lane: str
) -> None:
    begun: Counter[int] = Counter()

    @harness.app.task
    async def on_loop(number: int) -> None:
        begun[number] += 1
        if number >= 0:
            await open_gate(gate)

    @harness.app.task
    def in_thread(number: int) -> None:
        begun[number] += 1
        if number >= 0:
            gate.wait(PATIENCE)

    task = on_loop if lane == "concurrency" else in_thread
    with harness.runner(buffer=20, **{lane: 1}) as runner:
        harness.ends(*[task.enqueue(-1) for _ in range(10)])  # short jobs, so that the runner claims ahead
        jobs = [task.enqueue(number) for number in range(3)]
        eventually(lambda: [harness.state(job) for job in jobs] == [S.RUNNING, S.CLAIMED, S.CLAIMED])
        harness.cancel(runner, jobs[1], "not needed")
        (row,) = harness.ends(jobs[1])
        assert (row.state, row.reason, row.started_at) == (S.CANCELLED, "not needed", None)
        gate.set()
        harness.ends(*jobs)
    assert begun[1] == 0
    assert (begun[0], begun[2]) == (1, 1)


def test_a_cancel_for_an_earlier_claim_is_ignored(harness: Harness, gate: threading.Event) -> None:
    @harness.app.task
    async def work() -> str:
        await open_gate(gate)
        return "done"

    with harness.runner() as runner:
        job = work.enqueue()
        row = harness.becomes(job, S.RUNNING)
        runner.cancel([CancelRequest(row.id, row.token - 1, runner.worker, "old")])
        gate.set()
        assert job.result(PATIENCE) == "done"


@pytest.mark.parametrize(
    ("lane", "error", "execution"),
    [
        ("loop", ValueError("boom"), E.FAILED),
        ("thread", ValueError("boom"), E.FAILED),
        ("loop", Snooze(timedelta(hours=1)), E.RELEASED),
    ],
)
def test_a_job_whose_worker_missed_a_cancel_is_not_retried(
    harness: Harness, gate: threading.Event, lane: str, error: BaseException, execution: ExecutionState
) -> None:
    begun: Counter[str] = Counter()
    retry = Fixed(max_attempts=3, wait=timedelta(0))

    @harness.app.task(name="loop", retry=retry)
    async def on_loop() -> None:
        begun["loop"] += 1
        await open_gate(gate)
        raise error

    @harness.app.task(name="thread", retry=retry)
    def in_thread() -> None:
        begun["thread"] += 1
        gate.wait(PATIENCE)
        raise error

    with harness.runner():  # it has no heartbeat thread, which would pass on the cancel
        job = (on_loop if lane == "loop" else in_thread).enqueue()
        eventually(lambda: begun[lane] == 1)
        job.cancel("enough")
        gate.set()
        (row,) = harness.ends(job)
    assert (row.state, row.reason, begun[lane]) == (S.CANCELLED, "enough", 1)
    assert [done.state for done in harness.executions(job)] == [execution]


def test_a_job_released_before_its_worker_received_a_cancel_is_cancelled(harness: Harness) -> None:
    @harness.app.task
    async def forever() -> None:
        await asyncio.sleep(3600)

    with harness.runner():
        job = forever.enqueue()
        harness.becomes(job, S.RUNNING)
        job.cancel("enough")
    row = harness.row(job)
    assert (row.state, row.reason) == (S.CANCELLED, "enough")
    assert [done.state for done in harness.executions(job)] == [E.RELEASED]
