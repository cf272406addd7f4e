"""Tests of declared stages: refused names, and stages done and ahead."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tidemill import App, Context
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
        ("c", "going on"),
        ("d", "ahead"),
    ]


def test_a_job_that_has_not_started_has_all_its_stages_ahead() -> None:
    assert [stage.words for stage in stages([], [], ("a", "b"))] == ["ahead", "ahead"]
