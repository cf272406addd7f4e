"""Flows that jobs start: written with the end of the job, and awaited by durable functions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.grounds import url_of

from tidemill import App, Context, Fixed, ManualClock
from tidemill.errors import JobFailed, PermanentError

tries: list[int] = []


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    tries.clear()
    with App(url_of(request.param, tmp_path, request), migrate=True, clock=ManualClock()) as app:
        yield app


def test_a_flow_starts_with_the_completion_of_its_job_and_only_then(app: App) -> None:
    @app.task
    def add_one(number: int) -> int:
        return number + 1

    @app.task(retry=Fixed(max_attempts=2, wait="1m"))
    def plan(ctx: Context) -> str:
        flow = app.flow("sums")
        first = flow.add(add_one, number=1)
        flow.returns(flow.add(add_one, number=first.result).result)
        tries.append(1)
        id = ctx.start(flow)
        if len(tries) == 1:
            raise ValueError("the first attempt fails")
        return str(id)

    job = plan.enqueue()
    with app.testing() as testing:
        testing.drain()
        assert app.flows.list() == []
        testing.advance("1m")
        testing.drain()
    (run,) = app.flows.list()
    assert job.result() == str(run.id)
    assert run.result(timeout=0) == 3


def test_a_coroutine_starts_a_flow_with_its_completion(app: App) -> None:
    @app.task
    def work() -> str:
        return "done"

    @app.task
    async def plan(ctx: Context) -> None:
        flow = app.flow("sums")
        flow.returns(flow.add(work).result)
        await ctx.astart(flow)

    plan.enqueue()
    with app.testing() as testing:
        testing.drain()
    (run,) = app.flows.list()
    assert run.result(timeout=0) == "done"


def test_a_worker_that_dies_before_the_end_of_the_job_starts_the_flow_once(app: App) -> None:
    @app.task
    def work() -> None: ...

    @app.task
    def plan(ctx: Context) -> None:
        flow = app.flow("sums")
        flow.add(work)
        ctx.start(flow)

    plan.enqueue()
    with app.testing() as testing:
        testing.kill_at("finish")
        testing.drain()
        assert testing.kills == ["finish"]
    assert len(app.flows.list()) == 1


def test_a_durable_function_waits_for_a_flow_and_gets_its_result(app: App) -> None:
    @app.task
    def add_one(number: int) -> int:
        if number < 0:
            raise PermanentError("negative")
        return number + 1

    def begin(number: int) -> str:
        flow = app.flow("sums", key=str(number))
        flow.returns(flow.add(add_one, number=number).result)
        return str(flow.start().id)

    @app.task(retry=None)
    def outer(ctx: Context, number: int) -> int:
        run = app.flows.get(ctx.step("begin", begin, number))
        return int(ctx.join(run)) * 10

    good, bad = outer.enqueue(number=1), outer.enqueue(number=-1)
    with app.testing() as testing:
        testing.drain()
    assert good.result() == 20
    with pytest.raises(JobFailed, match="a node of it failed"):
        bad.result()


def test_a_flow_with_a_key_is_not_started_with_the_end_of_a_job(app: App) -> None:
    @app.task
    def work() -> None: ...

    @app.task(retry=None)
    def plan(ctx: Context) -> None:
        flow = app.flow("sums", key="k")
        flow.add(work)
        ctx.start(flow)

    job = plan.enqueue()
    with app.testing() as testing:
        testing.drain()
    with pytest.raises(JobFailed, match="has a key, so it may exist already"):
        job.result()
