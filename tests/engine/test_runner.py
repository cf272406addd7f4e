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
from tests.engine.mill import PATIENCE, Mill, open_gate, opened

from tidemill import Context, Fixed, Snooze
from tidemill.domain.cluster import CancelRequest
from tidemill.domain.states import ExecutionState, JobState

S, E = JobState, ExecutionState
SHORT = timedelta(milliseconds=200)


@pytest.fixture
def mill() -> Iterator[Mill]:
    with opened() as mill:
        yield mill


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that is set at the latest when the test ends, so that no thread waits forever."""
    gate = threading.Event()
    yield gate
    gate.set()


def took(mill: Mill, job: Any) -> float:
    """Seconds from the start of the last execution to its recorded end."""
    last = mill.executions(job)[-1]
    assert last.started_at is not None
    assert last.finished_at is not None
    return (last.finished_at - last.started_at).total_seconds()


# ----------------------------------------------------------------------------------------------------- timeouts


def test_a_coroutine_past_its_timeout_is_cancelled_and_retried(mill: Mill) -> None:
    stopped: list[int] = []

    @mill.app.task(timeout=SHORT, retry=Fixed(max_attempts=2, wait=timedelta(0)))
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            stopped.append(ctx.attempt)
            raise

    with mill.runner():
        job = slow.enqueue()
        (row,) = mill.ends(job)
    assert stopped == [1, 2]
    assert row.state is S.TIMED_OUT
    assert [execution.state for execution in mill.executions(job)] == [E.TIMED_OUT, E.TIMED_OUT]
    assert 0.2 <= took(mill, job) < 2.0


def test_a_coroutine_that_swallows_its_cancellation_is_recorded_as_timed_out(
    mill: Mill, gate: threading.Event
) -> None:
    ended = threading.Event()

    @mill.app.task(timeout=SHORT, retry=None)
    async def stubborn() -> str:
        while not gate.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        ended.set()
        return "too late"

    @mill.app.task
    async def neighbour() -> str:
        return "fine"

    with mill.runner() as runner:
        job = stubborn.enqueue()
        (row,) = mill.ends(job)
        assert row.state is S.TIMED_OUT
        assert 0.5 <= took(mill, job) < 3.0  # the timeout and the patience
        assert neighbour.enqueue().result(PATIENCE) == "fine"
        assert runner.stats().running == 1  # it still has its slot
        gate.set()
        assert ended.wait(PATIENCE)
        eventually(lambda: runner.stats().running == 0)
        assert mill.row(job) == row


def test_a_thread_that_checks_its_context_stops_in_time(mill: Mill) -> None:
    @mill.app.task(timeout=SHORT, retry=None)
    def polite(ctx: Context) -> None:
        while True:
            ctx.check()
            threading.Event().wait(0.01)

    with mill.runner():
        job = polite.enqueue()
        (row,) = mill.ends(job)
    assert row.state is S.TIMED_OUT
    assert row.reason == "exceeded timeout of 0.2 seconds"
    assert 0.15 <= took(mill, job) < 2.0


def test_a_thread_that_does_not_stop_is_recorded_and_its_slot_is_replaced(
    mill: Mill, gate: threading.Event
) -> None:
    ended, stuck = threading.Event(), threading.Event()
    said: list[str] = []

    @mill.app.task(timeout=SHORT, retry=None)
    def stubborn() -> str:
        gate.wait(PATIENCE)
        ended.set()
        return "too late"

    @mill.app.task
    def neighbour() -> str:
        return "fine"

    def on_stuck(reason: str) -> None:
        said.append(reason)
        stuck.set()

    with mill.runner(threads=1, on_stuck=on_stuck) as runner:
        job = stubborn.enqueue()
        (row,) = mill.ends(job)
        assert row.state is S.TIMED_OUT
        assert 0.5 <= took(mill, job) < 3.0
        assert stuck.wait(PATIENCE)
        assert str(job.id) in said[0]
        assert runner.stats().stuck == said[0]
        assert neighbour.enqueue().result(PATIENCE) == "fine"
        gate.set()
        assert ended.wait(PATIENCE)
        assert neighbour.enqueue().result(PATIENCE) == "fine"
        assert mill.row(job) == row
        eventually(lambda: runner.stats().free == 1)


def test_a_thread_that_has_returned_is_not_given_up(mill: Mill) -> None:
    seen: list[Any] = []

    @mill.app.task
    def quick(ctx: Context) -> None:
        seen.append(ctx.outlet)

    with mill.runner(threads=1) as runner:
        mill.ends(quick.enqueue())
        (held,) = seen
        held.timed_out = True
        runner.give_up(held)  # the watch checked a moment too early
        mill.ends(quick.enqueue())
        eventually(lambda: runner.stats().running == 0)
        assert runner.stats().free == 1


# ------------------------------------------------------------------------------------------------------ cancels


def test_a_running_coroutine_is_cancelled_with_the_given_reason(mill: Mill) -> None:
    @mill.app.task
    async def forever() -> None:
        await asyncio.sleep(3600)

    with mill.runner() as runner:
        job = forever.enqueue()
        mill.becomes(job, S.RUNNING)
        mill.cancel(runner, job, "enough")
        (row,) = mill.ends(job)
    assert (row.state, row.reason) == (S.CANCELLED, "enough")
    assert mill.executions(job)[-1].state is E.CANCELLED


@pytest.mark.parametrize("means", ["check", "track", "cancelled"])
def test_a_thread_sees_in_its_context_that_it_is_cancelled(mill: Mill, means: str) -> None:
    begun = threading.Event()

    def numbers() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1
            threading.Event().wait(0.005)

    @mill.app.task
    def work(ctx: Context) -> str:
        begun.set()
        for _ in ctx.track(numbers()) if means == "track" else numbers():
            if means == "check":
                ctx.check()
            if means == "cancelled" and ctx.cancelled:
                return "stopped half way"
        return "never"

    with mill.runner() as runner:
        job = work.enqueue()
        assert begun.wait(PATIENCE)
        mill.cancel(runner, job, "enough")
        (row,) = mill.ends(job)
    if means == "cancelled":  # it returned, so it is completed
        assert (row.state, row.result) == (S.COMPLETED, '"stopped half way"')
    else:
        assert (row.state, row.reason) == (S.CANCELLED, "enough")


@pytest.mark.parametrize("lane", ["threads", "concurrency"])
def test_a_cancelled_job_in_the_buffer_never_starts(mill: Mill, gate: threading.Event, lane: str) -> None:
    begun: Counter[int] = Counter()

    @mill.app.task
    async def on_loop(number: int) -> None:
        begun[number] += 1
        if number >= 0:
            await open_gate(gate)

    @mill.app.task
    def in_thread(number: int) -> None:
        begun[number] += 1
        if number >= 0:
            gate.wait(PATIENCE)

    task = on_loop if lane == "concurrency" else in_thread
    with mill.runner(buffer=20, **{lane: 1}) as runner:
        mill.ends(*[task.enqueue(-1) for _ in range(10)])  # short jobs, so that the runner claims ahead
        jobs = [task.enqueue(number) for number in range(3)]
        eventually(lambda: [mill.state(job) for job in jobs] == [S.RUNNING, S.CLAIMED, S.CLAIMED])
        mill.cancel(runner, jobs[1], "not needed")
        (row,) = mill.ends(jobs[1])
        assert (row.state, row.reason, row.started_at) == (S.CANCELLED, "not needed", None)
        gate.set()
        mill.ends(*jobs)
    assert begun[1] == 0
    assert (begun[0], begun[2]) == (1, 1)


def test_a_cancel_for_an_earlier_claim_is_ignored(mill: Mill, gate: threading.Event) -> None:
    @mill.app.task
    async def work() -> str:
        await open_gate(gate)
        return "done"

    with mill.runner() as runner:
        job = work.enqueue()
        row = mill.becomes(job, S.RUNNING)
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
    mill: Mill, gate: threading.Event, lane: str, error: BaseException, execution: ExecutionState
) -> None:
    begun: Counter[str] = Counter()
    retry = Fixed(max_attempts=3, wait=timedelta(0))

    @mill.app.task(name="loop", retry=retry)
    async def on_loop() -> None:
        begun["loop"] += 1
        await open_gate(gate)
        raise error

    @mill.app.task(name="thread", retry=retry)
    def in_thread() -> None:
        begun["thread"] += 1
        gate.wait(PATIENCE)
        raise error

    with mill.runner():  # it has no heartbeat thread, which would pass on the cancel
        job = (on_loop if lane == "loop" else in_thread).enqueue()
        eventually(lambda: begun[lane] == 1)
        job.cancel("enough")
        gate.set()
        (row,) = mill.ends(job)
    assert (row.state, row.reason, begun[lane]) == (S.CANCELLED, "enough", 1)
    assert [done.state for done in mill.executions(job)] == [execution]


def test_a_job_released_before_its_worker_received_a_cancel_is_cancelled(mill: Mill) -> None:
    @mill.app.task
    async def forever() -> None:
        await asyncio.sleep(3600)

    with mill.runner():
        job = forever.enqueue()
        mill.becomes(job, S.RUNNING)
        job.cancel("enough")
    row = mill.row(job)
    assert (row.state, row.reason) == (S.CANCELLED, "enough")
    assert [done.state for done in mill.executions(job)] == [E.RELEASED]
