"""Tests of jobs with Django connections that PostgreSQL terminates between jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.client.connections_kit import django_database
from tests.engine.harness import PATIENCE

from tidemill import App, Context, Fixed
from tidemill.client.enqueue.bound_task import BoundTask


class Project:
    """An app whose task reads the backend process id of a Django project's connection."""

    def __init__(self, app: App, db: Any, url: str, *, persistent: bool) -> None:
        self.app, self.db, self.url, self.persistent = app, db, url, persistent
        self.attempts: list[int] = []

        @app.task(retry=Fixed(max_attempts=3, wait=timedelta(milliseconds=10)))
        def ask(ctx: Context) -> int:
            self.attempts.append(ctx.attempt)
            with db.connections["jobs"].cursor() as cursor:
                cursor.execute("select pg_backend_pid()")
                found: int = cursor.fetchone()[0]
                return found

        @app.task
        def leave() -> None:
            db.connections["jobs"].close()

        self.ask: BoundTask[[], int] = ask
        self.leave: BoundTask[[], None] = leave

    def terminate(self, pid: int) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("select pg_terminate_backend(%s, 5000)", [pid])


@pytest.fixture(params=[0, None], ids=["new connection per job", "persistent connection"])
def project(request: pytest.FixtureRequest, migrated_postgres_url: str) -> Iterator[Project]:
    url = migrated_postgres_url
    with django_database(url, CONN_MAX_AGE=request.param) as db, App("memory://") as app:
        yield Project(app, db, url, persistent=request.param is None)


def test_a_job_recovers_from_a_terminated_connection(project: Project) -> None:
    with project.app.worker(threads=1, children=0):
        pid = project.ask.enqueue().result(PATIENCE)
        for _ in range(3):
            project.terminate(pid)
            project.attempts.clear()
            lost, pid = pid, project.ask.enqueue().result(PATIENCE)
            assert pid != lost
            # A persistent connection that was lost fails one attempt and is then replaced.
            assert project.attempts == ([1, 2] if project.persistent else [1])
        project.leave.enqueue().result(PATIENCE)


def test_a_test_that_drains_inside_a_transaction_keeps_its_connection(project: Project) -> None:
    with project.db.transaction.atomic(using="jobs"):
        with project.db.connections["jobs"].cursor() as cursor:
            cursor.execute("select pg_backend_pid()")
            mine = cursor.fetchone()[0]
        job = project.ask.enqueue()
        project.app.testing().drain(raise_errors=True)
        assert job.result(PATIENCE) == mine


def test_a_failure_to_close_connections_is_logged_and_fails_no_job(
    project: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("cannot look")

    with monkeypatch.context() as patched:
        patched.setattr(type(project.db.connections), "all", fail)
        job = project.ask.enqueue()
        with caplog.at_level(logging.ERROR):
            project.app.testing().drain(raise_errors=True)
    assert isinstance(job.result(PATIENCE), int)
    assert "cannot close old Django connections" in caplog.text
