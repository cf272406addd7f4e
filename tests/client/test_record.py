"""Tests of ``record``: how much of a job is kept after its end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tidemill import Context, Unique
from tidemill.app import App
from tidemill.client.core import client_of
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.errors import BadSettings, JobFailed, JobNotFound, ResultNotKept
from tidemill.tasks.events import Event


def stored(app: App) -> list[JobRow]:
    return [job.row for job in app.jobs.list(tenant=ALL_TENANTS).items]


def test_a_job_that_keeps_nothing_leaves_nothing_behind(app: App) -> None:
    @app.task(record="none", tags=["t"])
    def ping(ctx: Context) -> None:
        ctx.log("hello")
        ctx.progress(0.5)

    job = ping.enqueue()
    assert app.testing().drain().completed == 1
    assert stored(app) == []
    assert app.store.executions([job.id], tenant=ALL_TENANTS) == []
    assert app.store.logs(job.id, tenant=ALL_TENANTS) == []


@pytest.mark.parametrize("record", ["none", "last", "full"])
def test_a_failed_job_is_kept_and_can_be_retried(app: App, record: Any) -> None:
    fails = True

    @app.task(record=record, retry=None)
    def ping() -> None:
        if fails:
            raise ValueError("boom")

    job = ping.enqueue()
    app.testing().drain()
    assert job.refresh().status == "failed"
    assert [execution.error.message for execution in job.executions() if execution.error] == ["boom"]
    with pytest.raises(JobFailed, match="boom"):
        job.result()
    fails = False
    job.retry()
    app.testing().drain()
    if record == "none":
        with pytest.raises(JobNotFound, match="it completed, and record='none' of task ping keeps nothing"):
            job.refresh()
    else:
        assert len(job.refresh().executions()) == (1 if record == "last" else 2)


def test_only_the_last_execution_is_kept(app: App) -> None:
    @app.task(record="last", retry="immediate")
    def flaky(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ValueError("again")
        return ctx.attempt

    job = flaky.enqueue()
    app.testing().drain()
    assert job.result() == 3
    assert [execution.attempt for execution in job.refresh().executions()] == [3]


def test_a_call_overrides_the_record_of_its_task(app: App) -> None:
    @app.task(record="none")
    def ping() -> int:
        return 1

    @app.task
    def pong() -> int:
        return 2

    kept = ping.using(record="full").enqueue()
    gone = pong.using(record="none").enqueue()
    app.testing().drain()
    assert kept.result() == 1
    assert [job.id for job in stored(app)] == [kept.id]
    with pytest.raises(ResultNotKept, match="record='none', so its result is not kept"):
        gone.result()


def test_waiting_for_a_result_that_is_not_kept_fails_at_once(app: App) -> None:
    @app.task(record="none")
    def ping() -> int:
        return 1

    async def wait() -> None:
        await (await ping.aenqueue())

    with pytest.raises(ResultNotKept, match="use record='last'"):
        ping.enqueue().result()
    with pytest.raises(ResultNotKept, match="use record='last'"):
        asyncio.run(wait())


def test_a_lookup_by_id_names_the_tasks_that_leave_nothing(app: App) -> None:
    @app.task(record="none")
    def ping() -> None: ...

    job = ping.enqueue()
    app.testing().drain()
    with pytest.raises(JobNotFound, match="completed jobs of ping leave nothing behind"):
        app.jobs.get(job.id)


def test_a_watcher_sees_the_end_of_a_job_that_keeps_nothing_as_an_error(app: App) -> None:
    @app.task(record="none")
    def ping() -> None: ...

    job = ping.enqueue()
    seen = job.watch()
    next(seen)
    app.testing().drain()
    with pytest.raises(JobNotFound, match="it completed"):
        list(seen)


def test_the_end_of_a_job_that_keeps_nothing_is_published(app: App) -> None:
    heard: list[Event] = []
    app.on("job.finished", heard.append)

    @app.task(record="none")
    def ping() -> None: ...

    job = ping.enqueue()
    app.testing().drain()
    assert [(event.job_id, event.state) for event in heard] == [(job.id, "completed")]


def test_follow_up_jobs_of_a_job_that_keeps_nothing_are_enqueued(app: App) -> None:
    @app.task
    def after() -> int:
        return 5

    @app.task(record="none")
    def ping(ctx: Context) -> None:
        ctx.then(after)

    ping.enqueue()
    app.testing().drain()
    (left,) = app.jobs.list().items
    assert left.result() == 5
    with pytest.raises(JobNotFound, match="leave nothing behind"):
        left.parent()


def test_a_unique_window_outlives_a_job_that_keeps_nothing(app: App) -> None:
    @app.task(record="none", unique=Unique(within=timedelta(hours=1)))
    def ping(n: int) -> None: ...

    first = ping.enqueue(n=1)
    app.testing().drain()
    again = ping.enqueue(n=1)
    assert again.id == first.id
    assert again.status == "completed"
    assert ping.enqueue(n=2).id != first.id


def test_a_review_of_a_job_that_keeps_nothing_is_kept(app: App) -> None:
    from tidemill import Review

    @app.task(record="none")
    def ping() -> int:
        raise Review("look", output=1)

    job = ping.enqueue()
    app.testing().drain()
    assert job.refresh().status == "review_needed"
    assert job.approve().status == "completed"
    assert len(stored(app)) == 1


def test_a_cancelled_job_is_kept(app: App) -> None:
    @app.task(record="none")
    def ping() -> None: ...

    job = ping.enqueue()
    job.cancel("no")
    assert job.refresh().reason == "no"


def test_an_audited_enqueue_is_still_in_the_audit(app: App) -> None:
    @app.task(record="none", audit=True)
    def ping() -> None: ...

    job = ping.enqueue()
    app.testing().drain()
    assert [record.entry.subject for record in app.audit.list()] == [f"job:{job.id}"]


def test_definitions_and_schedules_take_record(app: App) -> None:
    @app.task
    def ping() -> int:
        return 1

    definition = app.definitions.save("quiet", ping, record="none")
    job = app.definitions.trigger(definition.key)
    assert job.row.details.options == {"record": "none"}
    app.testing().drain()
    assert stored(app) == []


def test_an_unknown_record_is_refused(app: App) -> None:
    with pytest.raises(BadSettings, match="record is 'some'; choose one of full, last, none"):
        app.task(record="some")(lambda: None)  # type: ignore[call-overload]

    @app.task
    def pong() -> None: ...

    with pytest.raises(BadSettings, match="choose one of full, last, none"):
        pong.using(record="all")  # type: ignore[arg-type]


def test_a_task_without_record_stores_no_option(app: App) -> None:
    @app.task(record="none")
    def ping() -> None: ...

    assert ping.enqueue().row.details.options == {}
    assert client_of(app).store(None).get([ping.enqueue().id], tenant=ALL_TENANTS)[0].details.options == {}


def test_a_worker_keeps_nothing_either(app: App) -> None:
    heard: list[Event] = []
    app.on("job.finished", heard.append)

    @app.task(record="none")
    def ping(n: int) -> None:
        if n == 3:
            raise ValueError("boom")

    @app.task
    async def pong(n: int) -> int:
        return n

    with app.worker(threads=2):
        ping.using(retry=None).enqueue_many([{"n": n} for n in range(50)])
        jobs = pong.enqueue_many([{"n": n} for n in range(50)])
        assert [job.result(30) for job in jobs] == list(range(50))
    left = [job for job in stored(app) if job.task == "ping" and job.state == "completed"]
    assert left == []
    assert {event.state for event in heard if event.task == "ping"} <= {"completed", "failed"}
