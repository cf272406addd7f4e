"""Tests of claims that a runner has lost: writes are refused, jobs stop."""

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

from tidemill import Context, Fixed
from tidemill.domain.job import Finish, Transition
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.runner.runner import Runner

S, E = JobState, ExecutionState


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


def taken_away(harness: Harness, job: Any, runner: Runner, after: timedelta = timedelta(hours=1)) -> None:
    """Return the job to its queue, as if its worker had been declared dead."""
    (claim,) = [claim for claim in harness.line.real.held(runner.worker) if claim.id == job.id]
    gone = Transition(S.SCHEDULED if after else S.PENDING, E.CRASHED, "given up", after, crashed=True)
    assert harness.line.real.finish([Finish(claim, gone)]) == frozenset()


def test_the_end_of_a_lost_job_is_refused_and_logged(
    harness: Harness, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    finished: list[Any] = []
    harness.app.events.subscribe("job.finished", lambda event: finished.append(event.job_id))

    @harness.app.task
    async def work() -> str:
        await open_gate(gate)
        return "done"

    with harness.runner() as runner:
        job = work.enqueue()
        harness.becomes(job, S.RUNNING)
        taken_away(harness, job, runner)
        gate.set()
        assert runner.wait_empty(PATIENCE)
        eventually(lambda: "their leases were lost" in caplog.text)
    assert (harness.state(job), harness.row(job).result) == (S.SCHEDULED, None)
    assert [execution.state for execution in harness.executions(job)] == [E.CRASHED]
    assert finished == []


@pytest.mark.parametrize("word", ["progress", "log"])
@pytest.mark.parametrize("lane", ["loop", "thread"])
def test_a_handler_whose_output_is_refused_is_stopped(harness: Harness, word: str, lane: str) -> None:
    ended = threading.Event()

    def speak(ctx: Context) -> None:
        ctx.progress(0.5) if word == "progress" else ctx.log("still here")

    @harness.app.task
    async def on_loop(ctx: Context) -> None:
        try:
            while True:
                speak(ctx)
                await asyncio.sleep(0.01)
        finally:
            ended.set()

    @harness.app.task
    def in_thread(ctx: Context) -> None:
        try:
            while True:
                ctx.check()
                speak(ctx)
                threading.Event().wait(0.01)
        finally:
            ended.set()

    with harness.runner() as runner:
        job = (on_loop if lane == "loop" else in_thread).enqueue()
        harness.becomes(job, S.RUNNING)
        taken_away(harness, job, runner)
        assert ended.wait(PATIENCE)
        eventually(lambda: runner.stats().running == 0)
    assert harness.state(job) is S.SCHEDULED
    assert [execution.state for execution in harness.executions(job)] == [E.CRASHED]


def test_a_job_claimed_again_before_its_last_end_was_answered_is_still_held(
    harness: Harness, gate: threading.Event
) -> None:
    begun: Counter[int] = Counter()
    first = threading.Event()

    @harness.app.task(retry=Fixed(max_attempts=3, wait=timedelta(0)))
    async def work(ctx: Context) -> str:
        begun[ctx.attempt] += 1
        if ctx.attempt == 1:
            await open_gate(first)
            raise ValueError("again")
        await open_gate(gate)
        return "second"

    reached, go_on = harness.line.hold_up("finish", "step", late=True, when=lambda given: bool(given[0]))
    with harness.runner(pumps=2) as runner:
        job = work.enqueue()
        eventually(lambda: begun[1] == 1)
        (old,) = runner.holding()
        first.set()
        assert reached.wait(PATIENCE)  # the first end is written, and its thread waits for the answer
        runner.wake()
        eventually(lambda: begun[2] == 1)
        go_on.set()
        eventually(lambda: runner.stats().done == 1)
        assert [held.claim.attempt for held in runner.holding()] == [2]
        runner.lose([old])  # late output of the first execution
        gate.set()
        assert job.result(PATIENCE) == "second"
    assert begun == {1: 1, 2: 1}


@pytest.mark.parametrize("lane", ["loop", "thread"])
def test_a_lost_job_claimed_again_by_the_same_runner_runs_only_once(harness: Harness, lane: str) -> None:
    events: list[str] = []

    @harness.app.task
    async def on_loop(ctx: Context) -> int:
        events.append(f"begin {ctx.attempt}")
        try:
            if ctx.attempt == 1:
                await asyncio.sleep(3600)
        finally:
            events.append(f"end {ctx.attempt}")
        return ctx.attempt

    @harness.app.task
    def in_thread(ctx: Context) -> int:
        events.append(f"begin {ctx.attempt}")
        try:
            while ctx.attempt == 1:
                ctx.check()
                threading.Event().wait(0.005)
        finally:
            events.append(f"end {ctx.attempt}")
        return ctx.attempt

    with harness.runner() as runner:
        job = (on_loop if lane == "loop" else in_thread).enqueue()
        eventually(lambda: events == ["begin 1"])
        taken_away(harness, job, runner, timedelta(0))
        runner.wake()
        assert job.result(PATIENCE) == 2
        eventually(lambda: sorted(events) == ["begin 1", "begin 2", "end 1", "end 2"])
        assert runner.wait_empty(PATIENCE)
        eventually(lambda: runner.stats().running == 0)
    assert [execution.state for execution in harness.executions(job)] == [E.CRASHED, E.SUCCEEDED]
