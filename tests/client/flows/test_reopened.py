"""Nodes that run again: they wait for their first needs, and not for the jobs that they awaited last."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest
from tests.grounds import url_of

from tidemill import App, Context, ManualClock


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    with App(url_of(request.param, tmp_path, request), clock=ManualClock(), migrate=True) as app:
        yield app


@pytest.mark.parametrize("policy", ["all", 1])
def test_a_reopened_node_that_had_suspended_waits_for_its_needs_again(
    app: App, policy: Literal["all"] | int
) -> None:
    ran: list[str] = []

    @app.task
    def first(number: int) -> int:
        ran.append(f"first {number}")
        return number

    @app.task
    def child() -> None: ...

    @app.task
    def durable(ctx: Context) -> None:
        ctx.sleep("nap", "1s")
        ctx.call("child", child)
        ran.append("durable")

    flow = app.flow("again")
    needs = [flow.add(first, number).named(f"first{number}") for number in (1, 2)]
    flow.add(durable).after(*needs).needs(policy).named("durable")
    run = flow.start()
    testing = app.testing()
    testing.drain()
    testing.advance(timedelta(seconds=2))
    testing.drain()
    assert run.status == "completed"
    assert ran.count("durable") == 1
    run.retry("first1", downstream=True)
    waits = run.node("durable").job.refresh()
    # With one need of two, the other one still counts.
    assert waits.status == ("waiting" if policy == "all" else "pending")
    testing.drain()
    testing.advance(timedelta(seconds=2))
    testing.drain()
    assert run.status == "completed"
    assert ran.index("durable") < len(ran) - 1
    assert app.store.recount_joins().repaired == frozenset()
