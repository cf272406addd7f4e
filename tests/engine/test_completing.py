"""Tests of ``ctx.complete``: the job and the handler's rows in one commit."""

from __future__ import annotations

import importlib
import logging
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.client.connections_kit import bare, orders, path_of, prepare
from tests.engine.cluster_kit import eventually
from tests.engine.following_kit import stored, stored_in
from tests.engine.harness import PATIENCE, Harness, Place, a_place, opened
from tests.grounds import url_of

from tidemill import App, Context, Fixed
from tidemill.client.core import client_of
from tidemill.client.own_connection import OwnConnections
from tidemill.domain.decide import DEFAULT_POLICY, decide
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish
from tidemill.domain.outcome import Crashed
from tidemill.domain.states import ExecutionState, JobState
from tidemill.errors import JobFailed, LeaseLost, UsageError

S = JobState
ORDER = "insert into orders values ('a chair')"


class Rollback(Exception):
    pass


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness(place: Place, tmp_path: Path) -> Iterator[Harness]:
    with place(tmp_path) as url:
        prepare(url)
        with opened(url) as harness:
            # The client checks the type of its store, which the fault-injecting proxy hides.
            client_of(harness.app).connections = OwnConnections(lambda: harness.line.real)
            yield harness


@contextmanager
def own_transaction(url: str) -> Iterator[Any]:
    """A transaction of the handler, with one row written in it."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(path_of(url), timeout=30)) as connection, connection:
            connection.execute(ORDER)
            yield connection
    else:
        with psycopg.connect(bare(url)) as session:
            session.execute(ORDER)
            yield session


def seen(harness: Harness, job: Any) -> tuple[JobState, str | None, list[ExecutionState]]:
    row = harness.row(job)
    executions = harness.line.real.executions([job.id], tenant=ALL_TENANTS)
    return row.state, row.result, [each.state for each in executions]


ONCE = (S.COMPLETED, "7", [ExecutionState.SUCCEEDED])


@pytest.mark.parametrize("kind", ["function", "coroutine"])
@pytest.mark.parametrize("returns", [None, 8])
def test_completion_next_job_and_the_handlers_rows_are_one_commit(
    harness: Harness, kind: str, returns: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    harness.app.events.on("job.finished")(lambda event: told.append(f"{event.task} {event.state}"))

    @harness.app.task
    def following() -> None: ...

    def work(ctx: Context) -> Any:
        ctx.log("before")
        with own_transaction(harness.url) as connection:
            ctx.then(following)
            ctx.complete(connection, 7)
            assert stored(harness, "following") == []
        assert len(stored(harness, "following")) == 1
        assert harness.row(ctx.job_id).state is S.COMPLETED
        ctx.progress(0.9)
        ctx.log("after the commit")
        return returns

    @harness.app.task(name="function")
    def function(ctx: Context) -> int:
        return work(ctx)  # type: ignore[no-any-return]

    @harness.app.task(name="coroutine")
    async def coroutine(ctx: Context) -> int:
        return work(ctx)  # type: ignore[no-any-return]

    with caplog.at_level(logging.WARNING, "tidemill"), harness.worker():
        job = (function if kind == "function" else coroutine).enqueue()
        assert job.result(PATIENCE) == 7
        harness.ends(job)
        eventually(lambda: len(told) == 2)
    assert seen(harness, job) == ONCE
    assert [each.details.parent_id for each in stored(harness, "following")] == [job.id]
    assert orders(harness.url) == 1
    assert sorted(told) == sorted([f"{kind} completed", "following completed"])
    assert [line.message for _, line in harness.line.real.logs(job.id, tenant=ALL_TENANTS)] == ["before"]
    assert [record.message for record in caplog.records] == []


@pytest.mark.parametrize("returns", [None, 8])
def test_a_rolled_back_transaction_leaves_the_completion_to_the_return(
    harness: Harness, returns: int | None
) -> None:
    @harness.app.task
    def following() -> None: ...

    @harness.app.task
    def work(ctx: Context) -> int:
        ctx.then(following)
        try:
            with own_transaction(harness.url) as connection:
                ctx.complete(connection, 7)
                raise Rollback
        except Rollback:
            with pytest.raises(UsageError, match=r"ctx\.complete was called"):
                ctx.then(following)
        ctx.log("afterwards")
        return returns  # type: ignore[return-value]

    with harness.worker():
        job = work.enqueue()
        assert job.result(PATIENCE) == (returns or 7)
        eventually(lambda: [each.state for each in stored(harness, "following")] == [S.COMPLETED])
    assert harness.row(job).token == 1
    assert [line.message for _, line in harness.line.real.logs(job.id, tenant=ALL_TENANTS)] == ["afterwards"]
    assert orders(harness.url) == 0


def test_a_handler_that_raises_after_its_commit_leaves_the_job_completed(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []
    harness.app.events.on("job.finished")(lambda event: told.append(str(event.state)))
    harness.app.events.on("job.put_off")(lambda event: told.append(str(event.state)))

    @harness.app.task(retry=Fixed(max_attempts=3))
    def work(ctx: Context) -> int:
        with own_transaction(harness.url) as connection:
            ctx.complete(connection, 7)
        raise ValueError("too late")

    with harness.worker():
        job = work.enqueue()
        assert job.result(PATIENCE) == 7
        eventually(lambda: told == ["completed"])
    assert seen(harness, job) == ONCE
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.startswith(f"job {job.id} was completed by its own transaction")
    assert "too late" in warning


def test_a_lost_claim_raises_lease_lost_and_the_rows_are_rolled_back(harness: Harness) -> None:
    caught: list[str] = []

    @harness.app.task
    def following() -> None: ...

    @harness.app.task(retry=None)
    def work(ctx: Context) -> int:
        if ctx.job.token > 1:
            return 2
        worker = harness.row(ctx.job_id).worker
        assert worker is not None
        (claim,) = harness.line.real.held(worker)
        crash = decide(claim, Crashed("taken away"), DEFAULT_POLICY, ctx.now(), 0.5)
        harness.line.real.finish([Finish(claim._replace(max_attempts=4), crash)])
        ctx.then(following)
        try:
            with own_transaction(harness.url) as connection:
                ctx.complete(connection, 7)
        except LeaseLost as error:
            caught.append(str(error))
            raise
        return 1

    with harness.worker():
        job = work.enqueue()
        eventually(lambda: caught)
    assert caught == [f"job {job.id} is no longer held by this worker; roll your transaction back"]
    assert stored(harness, "following") == []
    assert orders(harness.url) == 0
    assert harness.row(job).result != "7"


def test_after_a_lost_answer_the_committed_end_is_read_from_the_store(harness: Harness) -> None:
    @harness.app.task
    def work(ctx: Context) -> int:
        with own_transaction(harness.url) as connection:
            ctx.complete(connection, 7)
        harness.line.lose_answer("finish", "step", times=1, when=lambda given: bool(given[0]))
        harness.line.refuse("get", times=2)
        return 7

    with harness.worker():
        job = work.enqueue()
        assert job.result(PATIENCE) == 7
        harness.ends(job)
    assert seen(harness, job) == ONCE


def test_a_result_of_the_wrong_type_is_refused_before_anything_is_written(harness: Harness) -> None:
    @harness.app.task(retry=None)
    def work(ctx: Context) -> int:
        with own_transaction(harness.url) as connection:
            ctx.complete(connection, "no number")
        return 1

    with harness.worker():
        job = work.enqueue()
        with pytest.raises(JobFailed):
            job.result(PATIENCE)
    assert orders(harness.url) == 0


def test_the_test_runner_sees_the_job_completed(harness: Harness) -> None:
    @harness.app.task
    def work(ctx: Context, fail: bool) -> int:
        with own_transaction(harness.url) as connection:
            ctx.complete(connection, 7)
        if fail:
            raise ValueError
        return 7

    jobs = [work.enqueue(fail=fail) for fail in (False, True)]
    with harness.app.testing() as testing:
        done = testing.drain()
    assert (done.completed, done.lost) == (2, 0)
    assert [seen(harness, job) for job in jobs] == [ONCE, ONCE]


# Async connections and child processes -------------------------------------------------------------------------------------

APP = """
import os, sqlite3
import psycopg
from tidemill import App, Context

app = App({url!r})
ORDER = "insert into orders values ('a chair')"


@app.task
def following() -> None: ...


def work(ctx: Context, then: str) -> int:
    ctx.log("before")
    ctx.then(following)
    if {sqlite!r}:
        connection = sqlite3.connect({place!r}, timeout=30)
    else:
        connection = psycopg.connect({place!r})
    with connection:
        connection.execute(ORDER)
        ctx.complete(connection, 7)
    if then == "raise":
        raise ValueError("too late")
    if then == "die":
        os._exit(9)
    return 7


@app.task(isolation="process")
def alone(ctx: Context, then: str) -> int:
    return work(ctx, then)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, tmp_path, request)


@pytest.mark.parametrize("then", ["return", "raise", "die"])
def test_a_job_in_a_child_process_completes_itself(
    url: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    prepare(url)
    sqlite = url.startswith("sqlite")
    text = APP.format(url=url, sqlite=sqlite, place=path_of(url) if sqlite else bare(url))
    (tmp_path / "completing_app.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "completing_app", raising=False)
    module = importlib.import_module("completing_app")
    app: App = module.app
    with app, app.worker(children=1) as worker:
        job = module.alone.enqueue(then=then)
        assert job.result(PATIENCE) == 7
        eventually(lambda: worker._runner is not None and worker._runner.quiet)
        (row,) = app.store.get([job.id], tenant=ALL_TENANTS)
        assert (row.state, row.token, row.crashes) == (S.COMPLETED, 1, 0)
        eventually(lambda: [each.state for each in stored_in(app.store, "following")] == [S.COMPLETED])
        lines = [line.message for _, line in app.store.logs(job.id, tenant=ALL_TENANTS)]
        assert lines == ["before"]
    assert orders(url) == 1
    warned = [
        record.getMessage() for record in caplog.records if "completed by its own" in record.getMessage()
    ]
    assert len(warned) == (0 if then == "return" else 1)
    monkeypatch.delitem(sys.modules, "completing_app")


def test_a_coroutine_completes_itself_on_an_async_connection(migrated_postgres_url: str) -> None:
    prepare(migrated_postgres_url)
    with App(migrated_postgres_url) as app:

        @app.task
        async def work(ctx: Context) -> int:
            async with await psycopg.AsyncConnection.connect(bare(migrated_postgres_url)) as connection:
                await connection.execute(ORDER)
                await ctx.acomplete(connection, 7)
            return 7

        with app.worker(children=0):
            assert work.enqueue().result(PATIENCE) == 7
    assert orders(migrated_postgres_url) == 1
