"""Tests of ``should_retry`` and ``retry_delay`` in every executor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, opened
from tests.engine.kit import World

from tidemill import App, Context, Exponential, Fixed, Task
from tidemill.clock import ManualClock
from tidemill.domain.cluster import Worker
from tidemill.domain.job import Execution
from tidemill.domain.outcome import Failed
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.runner.runner import Runner
from tidemill.engine.worker_settings import read_settings
from tidemill.errors import BadSettings
from tidemill.ids import new_id

S, E = JobState, ExecutionState
SHORT = timedelta(milliseconds=200)
HOUR = timedelta(hours=1)


@pytest.fixture(params=STORES)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    place: Place = a_place(request)
    with place(tmp_path) as url, opened(url) as harness:
        yield harness


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def refuse(execution: Execution) -> bool:
    return execution.state is not E.TIMED_OUT


def test_a_coroutine_that_timed_out_is_not_retried_if_its_hook_refuses(harness: Harness) -> None:
    @harness.app.task(timeout=SHORT, retry=Fixed(max_attempts=4, wait=timedelta(0)), should_retry=refuse)
    async def slow() -> None:
        await asyncio.sleep(3600)

    with harness.runner():
        job = slow.enqueue()
        (row,) = harness.ends(job)
    assert row.state is S.TIMED_OUT
    assert [execution.state for execution in harness.executions(job)] == [E.TIMED_OUT]


def test_a_thread_that_checks_its_context_is_not_retried_if_its_hook_refuses(harness: Harness) -> None:
    @harness.app.task(timeout=SHORT, retry=Fixed(max_attempts=4, wait=timedelta(0)), should_retry=refuse)
    def polite(ctx: Context) -> None:
        while True:
            ctx.check()
            threading.Event().wait(0.01)

    with harness.runner():
        job = polite.enqueue()
        (row,) = harness.ends(job)
    assert row.state is S.TIMED_OUT
    assert len(harness.executions(job)) == 1


def test_a_thread_that_does_not_stop_is_not_retried_if_its_hook_refuses(
    harness: Harness, gate: threading.Event
) -> None:
    class Stubborn(Task[None, None]):
        def run(self) -> None:
            gate.wait(PATIENCE)

        def should_retry(self, execution: Execution) -> bool:
            return refuse(execution)

    stubborn = harness.app.task(timeout=SHORT, retry=Fixed(max_attempts=4, wait=timedelta(0)))(Stubborn)
    with harness.runner():
        job = stubborn.enqueue()
        (row,) = harness.ends(job)
        gate.set()
    assert row.state is S.TIMED_OUT
    assert len(harness.executions(job)) == 1


def test_the_hook_chooses_the_delay_after_a_timeout(harness: Harness) -> None:
    @harness.app.task(timeout=SHORT, retry=Exponential(max_attempts=4), retry_delay=lambda _execution: HOUR)
    async def slow() -> None:
        await asyncio.sleep(3600)

    with harness.runner():
        job = slow.enqueue()
        row = harness.becomes(job, S.SCHEDULED)
    assert row.run_at - harness.row(job).created_at > timedelta(minutes=59)


_MODULE = """
import time
from tidemill import App

app = App("memory://")
@app.task(name="slow", isolation="process")
def slow() -> None:
    time.sleep(3600)
"""


def test_a_child_process_killed_at_its_timeout_calls_the_hook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hooked_app.py").write_text(_MODULE)
    monkeypatch.chdir(tmp_path)
    with opened() as harness:

        @harness.app.task(name="slow", isolation="process", timeout=SHORT, should_retry=refuse)
        def slow() -> None: ...

        me = harness.line.real.register(Worker(new_id(), "a runner"), lease=HOUR)
        settings = read_settings({"children": 1, "pumps": 1, "patience": 1})
        runner = Runner(
            harness.line.store,
            harness.app.registry,
            me.id,
            settings,
            harness.clock,
            app_path="hooked_app:app",
        )
        runner.start()
        try:
            job = slow.enqueue()
            (row,) = harness.ends(job)
        finally:
            runner.stop(0)
        assert row.state is S.TIMED_OUT
        assert len(harness.executions(job)) == 1


def test_the_test_runner_calls_the_hook_after_a_timeout() -> None:
    clock = ManualClock()
    with App("memory://", clock=clock) as app:

        @app.task(timeout=SHORT, retry=Fixed(max_attempts=4, wait=timedelta(0)), should_retry=refuse)
        def slow() -> None:
            clock.advance(HOUR)

        job = slow.enqueue()
        with app.testing() as testing:
            testing.drain()
        assert job.refresh().status == "timed_out"
        assert len(job.executions()) == 1


@pytest.mark.parametrize("wanted", [True, False])
def test_a_function_takes_hooks_as_options(wanted: bool) -> None:
    def work() -> None:
        raise ConnectionError("gone")

    hooks: dict[str, Any] = {
        "should_retry": lambda _execution: wanted,
        "retry_delay": lambda _execution: HOUR,
    }
    outcome = World().run(work, **hooks).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, outcome.retry_after) == (wanted, HOUR if wanted else None)


def test_a_hook_that_cannot_be_called_is_refused_at_the_declaration() -> None:
    with App("memory://") as app, pytest.raises(BadSettings, match="should_retry is True; give a function"):

        @app.task(should_retry=True)  # type: ignore[call-overload, untyped-decorator]
        def work() -> None: ...


def test_a_coroutine_that_blocks_past_its_timeout_completes_with_a_note(harness: Harness) -> None:
    @harness.app.task(timeout=SHORT)
    async def blocks() -> str:
        threading.Event().wait(0.5)  # blocks the loop on purpose, so that it cannot be cancelled
        return "done"

    with harness.runner():
        job = blocks.enqueue()
        (row,) = harness.ends(job)
    assert_marked(row)


def test_a_thread_that_returns_after_its_timeout_completes_with_a_note(harness: Harness) -> None:
    @harness.app.task(timeout=SHORT)
    def late() -> str:
        threading.Event().wait(0.4)
        return "done"

    with harness.runner(patience=PATIENCE):
        job = late.enqueue()
        (row,) = harness.ends(job)
    assert_marked(row)


def assert_marked(row: Any) -> None:
    assert row.state is S.COMPLETED
    assert row.reason is not None
    assert row.reason.endswith("past its timeout of 0.2 s")
