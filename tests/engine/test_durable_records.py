"""Tests of durable functions: lazy steps, sleeps until an instant, and steps in the user's own transaction."""

from __future__ import annotations

import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.client.connections_kit import bare
from tests.engine.test_durable import HOUR, Effects, app, memory, row

from tidemill import App, Context, Fixed, Job, ManualClock, Step
from tidemill.domain.states import JobState
from tidemill.errors import UsageError

__all__ = ["app", "memory"]  # fixtures


@pytest.mark.parametrize("rolls_back", [False, True])
def test_a_step_in_the_users_transaction_commits_with_it(tmp_path: Path, rolls_back: bool) -> None:
    file = tmp_path / "own.db"

    def insert(connection: sqlite3.Connection) -> int:
        connection.execute("insert into orders(n) values (1)")
        return 5

    with App(f"sqlite:///{file}", clock=ManualClock(), migrate=True) as app:
        with sqlite3.connect(file) as connection:
            connection.execute("create table orders(n)")
        rolled = [rolls_back]

        @app.task(retry=Fixed(3, wait=1))
        def work(ctx: Context) -> int:
            with sqlite3.connect(file) as connection:
                value = ctx.step_in(connection, "insert", insert, connection)
                if rolled.pop() if rolled else False:
                    raise OSError("rolled back")
            ctx.sleep("rest", HOUR)
            return value

        job = work.enqueue()
        with app.testing() as testing:
            testing.run_until_idle()
        assert job.result(timeout=1) == 5
        with sqlite3.connect(file) as connection:
            assert connection.execute("select count(*) from orders").fetchone() == (1,)


def test_a_lazy_step_is_written_with_the_next_record_or_the_end(app: App) -> None:
    effects, written = Effects(), list[bool]()

    def recorded(job: Job[Any]) -> set[str]:
        return set(app.store.checkpoints(job.id, tenant="default"))

    @app.task
    def work(ctx: Context) -> str:
        one = ctx.step(Step("one", lazy=True), effects.do, "one")
        written.append("step/one" in app.store.checkpoints(ctx.job.id, tenant="default"))
        two = ctx.step("two", effects.do, "two")
        ctx.sleep("rest", HOUR)
        return one + two + ctx.step(Step("three", lazy=True), effects.do, "three")

    job = work.enqueue()
    with app.testing() as testing:
        testing.drain(raise_errors=True)
        assert {"step/one", "step/two"} <= recorded(job), "a lazy record travels with the next one"
        testing.run_until_idle(raise_errors=True)
    assert job.result(timeout=1) == "ONETWOTHREE"
    assert effects == ["one", "two", "three"]
    assert written == [False, True]
    assert "step/three" in recorded(job), "the last lazy record is written with the completion"


def test_a_lazy_step_is_repeated_after_a_crash_before_the_next_record(app: App) -> None:
    effects = Effects()

    @app.task
    def work(ctx: Context) -> str:
        one = ctx.step(Step("one", lazy=True), effects.do, "one")
        return one + ctx.step("two", effects.do, "two")

    job = work.enqueue()
    with app.testing() as testing:
        testing.kill_at("in-step:two")
        testing.run_until_idle()
    assert job.result(timeout=1) == "ONETWO"
    assert effects == ["one", "two"] * 2


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_job_sleeps_until_an_instant_and_keeps_the_first_one(app: App, kind: str) -> None:
    past = app.clock.now()
    at = past + HOUR

    @app.task(name="sync")
    def work(ctx: Context) -> str:
        ctx.sleep_until("morning", at)
        ctx.sleep_until("past", past)
        return "awake"

    @app.task(name="async")
    async def awork(ctx: Context) -> str:
        await ctx.asleep_until("morning", at)
        await ctx.asleep_until("past", past)
        return "awake"

    job: Job[str] = (work if kind == "sync" else awork).enqueue()
    with app.testing() as testing:
        testing.drain(raise_errors=True)
        assert (row(app, job).state, row(app, job).run_at) == (JobState.WAITING, at)
        at += 5 * HOUR
        testing.advance(HOUR)
        assert testing.drain(raise_errors=True).completed == 1
    assert job.result(timeout=1) == "awake"


def test_sleep_until_needs_an_aware_instant(memory: App) -> None:
    @memory.task(retry=None)
    def work(ctx: Context) -> None:
        ctx.sleep_until("morning", datetime(2026, 1, 1))  # noqa: DTZ001

    work.enqueue()
    with memory.testing() as testing, pytest.raises(UsageError, match="aware datetime"):
        testing.drain(raise_errors=True)


@pytest.mark.parametrize("rolls_back", [False, True])
def test_a_step_on_an_async_connection_commits_with_its_transaction(
    migrated_postgres_url: str, rolls_back: bool
) -> None:
    place = bare(migrated_postgres_url)
    rolled = [rolls_back]

    async def insert(connection: psycopg.AsyncConnection[Any]) -> int:
        await connection.execute("insert into orders(n) values (1)")
        return 5

    with psycopg.connect(place) as connection:
        connection.execute("create table orders(n int)")
    with App(migrated_postgres_url, clock=ManualClock()) as app:

        @app.task(retry=Fixed(3, wait=1))
        async def work(ctx: Context) -> int:
            async with await psycopg.AsyncConnection.connect(place) as connection:
                value: int = await ctx.astep_in(connection, "insert", insert, connection)
                if rolled.pop() if rolled else False:
                    raise OSError("rolled back")
            await ctx.asleep("rest", HOUR)
            return value

        job = work.enqueue()
        with app.testing() as testing:
            testing.run_until_idle()
        assert job.result(timeout=1) == 5
    with psycopg.connect(place) as connection:
        assert connection.execute("select count(*) from orders").fetchone() == (1,)
