"""Tests of archived jobs: found by id with all details, and immutable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tidemill import App, Context, PermanentError
from tidemill.client.jobs.handle import Job
from tidemill.domain.retention import Selection, Selector
from tidemill.errors import IllegalTransition, JobFailed, JobNotFound
from tidemill.stores.base import Store

NOW = timedelta(0)


@pytest.fixture
def archived(app: App) -> tuple[Job[Any], Job[Any]]:
    """Handles of a completed and a failed job, created before the jobs were archived."""

    @app.task(name="count")
    def count(ctx: Context, to: int) -> int:
        ctx.log("counting", to=to)
        ctx.log("counted")
        return to

    @app.task(name="fail")
    def fail() -> None:
        raise PermanentError("no")

    headers = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    done: Job[Any] = count.using(tags=["a"], reference=("user", "42"), headers=headers).enqueue(to=3)
    failed: Job[Any] = fail.enqueue()
    app.testing().drain()
    assert app.archive.run(older_than=NOW).archived == 2
    return done, failed


def test_an_archived_job_is_found_by_id_with_result_executions_and_logs(
    app: App, archived: tuple[Job[Any], Job[Any]]
) -> None:
    job = app.jobs.get(str(archived[0].id))
    assert (job.status, job.value, job.args, job.tags) == ("completed", 3, {"to": 3}, ("a",))
    assert job.archived_at is not None
    assert (job.reference, job.trace_id) == (("user", "42"), "4bf92f3577b34da6a3ce929d0e0e4736")
    assert job.result(timeout=0) == 3
    assert [execution.state for execution in job.executions()] == ["succeeded"]
    assert [entry.message for entry in job.logs()] == ["counting", "counted"]
    assert [reason.code for reason in job.why()] == ["ended", "archived"]
    assert [seen.archived_at for seen in job.watch()] == [job.archived_at]
    with pytest.raises(JobNotFound):
        app.jobs.get(job.id, tenant="other")


def test_a_handle_from_before_the_archiving_still_works(archived: tuple[Job[Any], Job[Any]]) -> None:
    done, failed = archived
    assert done.archived_at is None  # the state at the last refresh
    assert done.result(timeout=5) == 3
    assert [entry.message for entry in done.logs()] == ["counting", "counted"]
    assert len(done.executions()) == 1
    with pytest.raises(JobFailed, match="no"):
        failed.result(timeout=5)
    assert failed.refresh().archived_at is not None


def test_coroutines_can_read_an_archived_job(app: App, archived: tuple[Job[Any], Job[Any]]) -> None:
    async def read() -> None:
        assert await archived[0].aresult(timeout=5) == 3
        job = await app.jobs.aget(archived[0].id)
        assert job.archived_at is not None
        assert [seen.status async for seen in job.awatch()] == ["completed"]

    asyncio.run(read())


@pytest.mark.parametrize(
    ("verb", "act"),
    [
        ("cancel", lambda job: job.cancel()),
        ("retry", lambda job: job.retry()),
        ("run now", lambda job: job.run_now()),
        ("reschedule", lambda job: job.reschedule(timedelta(hours=1))),
        ("rerun", lambda job: job.rerun()),
        ("approve", lambda job: job.approve()),
        ("reject", lambda job: job.reject()),
        ("delete", lambda job: job.delete()),
    ],
)
def test_an_archived_job_cannot_be_changed(
    app: App, archived: tuple[Job[Any], Job[Any]], verb: str, act: Callable[[Job[Any]], object]
) -> None:
    for job in (archived[1], app.jobs.get(archived[1].id)):
        with pytest.raises(
            IllegalTransition, match=f"cannot {verb} job .*: it was archived .* restore it first"
        ):
            act(job)


def test_an_archived_job_is_read_from_the_separate_archive_store() -> None:
    with App(stores={"default": "memory://", "archive": "memory://"}) as parted:
        job = parted.task(name="nothing")(_nothing).enqueue()
        parted.testing().drain()
        assert parted.archive.run(older_than=NOW).archived == 1
        assert parted.jobs.get(job.id).archived_at is not None


def test_a_job_purged_from_the_archive_is_not_found(app: App, archived: tuple[Job[Any], Job[Any]]) -> None:
    store: Store = app.store
    assert len(store.remove_archived(store.archived_due(Selection(Selector(), "archive")))) == 2
    with pytest.raises(JobNotFound):
        app.jobs.get(archived[0].id)


def _nothing() -> None: ...
