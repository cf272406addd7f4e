"""Tests of declared stages: refused names, and stages done and ahead."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tidemill import App, Context, Fixed, ManualClock
from tidemill.clock import SystemClock
from tidemill.domain.job import LogEntry
from tidemill.domain.stages import stages
from tidemill.errors import BadSettings, JobFailed
from tidemill.ids import new_id

NOW = SystemClock().now()
ID = new_id()


def test_a_stage_that_the_task_does_not_declare_is_refused() -> None:
    with App("memory://") as app:

        @app.task(stages=("extract", "store"), retry=None)
        def load(ctx: Context, name: str) -> str:
            with ctx.stage(name):
                return name

        good, bad = load.enqueue(name="store"), load.enqueue(name="stroe")
        app.testing().drain()
        assert good.result() == "store"
        with pytest.raises(JobFailed, match="task load has no stage 'stroe'; its stages are extract, store"):
            bad.result()


def test_without_declared_stages_any_name_is_a_stage() -> None:
    with App("memory://") as app:

        @app.task
        def load(ctx: Context) -> str:
            with ctx.stage("anything"):
                return "done"

        job = load.enqueue()
        app.testing().drain()
        assert job.result() == "done"


@pytest.mark.parametrize("given", [("a", "a"), ("",), (1,), "text"])
def test_stages_must_be_distinct_names(given: Any) -> None:
    with App("memory://") as app, pytest.raises(BadSettings, match="stages"):
        app.task(stages=given)(plain)


def plain() -> None: ...


def line(message: str, stage: str, took: float | None = None, number: int = 1) -> LogEntry:
    return LogEntry(
        job_id=ID,
        number=number,
        at=NOW,
        level="info",
        message=message,
        stage=stage,
        duration=None if took is None else timedelta(seconds=took),
    )


def test_declared_stages_are_listed_in_order_including_those_still_ahead() -> None:
    lines = [line("stage b begins", "b"), line("stage b ends", "b", 2), line("stage c begins", "c")]
    found = stages(lines, [], ("a", "b", "c", "d"))
    assert [(stage.name, stage.words) for stage in found] == [
        ("a", "ahead"),
        ("b", "done"),
        ("c", "running"),
        ("d", "ahead"),
    ]


def test_a_job_that_has_not_started_has_all_its_stages_ahead() -> None:
    assert [stage.words for stage in stages([], [], ("a", "b"))] == ["ahead", "ahead"]


# Pipelines ---------------------------------------------------------------------------------------------------------------

calls: list[str] = []


def extract(source: str) -> list[int]:
    calls.append("extract")
    return [len(source), 2]


def transform(rows: list[int]) -> int:
    calls.append("transform")
    if calls.count("transform") == 1:
        raise ValueError("not yet")
    return sum(rows)


def store(total: int) -> str:
    calls.append("store")
    return f"stored {total}"


async def astore(total: int) -> str:
    return store(total)


def test_a_pipeline_runs_its_stages_in_order_and_a_retry_begins_with_the_failed_one() -> None:
    calls.clear()
    with App("memory://", clock=ManualClock()) as app:

        @app.task(stages=(extract, transform, store), retry=Fixed(max_attempts=2, wait="1m"))
        def nightly(ctx: Context, source: str) -> str:
            return str(ctx.run_stages(source))

        assert nightly.options.stages == ("extract", "transform", "store")
        job = nightly.enqueue(source="abc")
        with app.testing() as testing:
            testing.drain()
            assert [(stage.name, stage.words) for stage in job.stages()] == [
                ("extract", "done"),
                ("transform", "failed: ValueError: not yet"),
                ("store", "not reached"),
            ]
            testing.advance("1m")
            testing.drain()
        assert job.result() == "stored 5"
        assert calls == ["extract", "transform", "transform", "store"]
        assert [step.name for step in job.steps()] == ["extract", "store", "transform"]
        first, *others = job.stages()
        assert [stage.words for stage in (first, *others)] == ["done"] * 3
        assert (first.number, [stage.number for stage in others]) == (1, [2, 2])
        assert first.began_at is not None
        assert first.ended_at is not None


def test_a_pipeline_survives_a_crash_at_every_boundary() -> None:
    calls[:] = ["transform"]
    with App("memory://", clock=ManualClock()) as app:

        @app.task(stages=[extract, transform, astore])
        async def nightly(ctx: Context, source: str) -> str:
            return str(await ctx.arun_stages(source))

        job = nightly.enqueue(source="abc")
        with app.testing() as testing:
            testing.resume_all()
        assert job.result() == "stored 5"
        assert "after-step:transform" in testing.kills


def test_a_task_whose_stages_are_names_has_no_pipeline() -> None:
    with App("memory://") as app:

        @app.task(stages=("a", "b"), retry=None)
        def load(ctx: Context) -> None:
            ctx.run_stages()

        job = load.enqueue()
        app.testing().drain()
        with pytest.raises(JobFailed, match="declares no functions as its stages"):
            job.result()
