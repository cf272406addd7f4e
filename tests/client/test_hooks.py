"""Tests of enqueue hooks, the headers they set, and events of actions."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.client.schedules_kit import HOUR, MIDNIGHT, TO, on_each_store

from tidemill import App, Context, Every, Manual, ManualClock, Review, Unique
from tidemill.domain.job import JobRow
from tidemill.errors import BadSettings, PayloadTooLarge, UsageError
from tidemill.tasks.events import Event
from tidemill.tasks.middleware import HookStep


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    with on_each_store(request, tmp_path) as app:
        yield app


class Seen:
    """Records the calls of hooks and subscribers, and marks every job."""

    def __init__(self, app: App) -> None:
        self.steps: list[str] = []
        self.made: list[str] = []

        @contextmanager
        def stamp(step: HookStep) -> Iterator[None]:
            step.headers["trace"] = f"of {step.task}"
            self.steps.append(f"begin {step.task} {len(step.jobs)}")
            yield
            self.steps.append(f"end {step.task}")

        @app.middleware(only="enqueue")
        def tagged(step: HookStep, proceed: Callable[[], Any]) -> Any:
            step.jobs = [job._replace(priority=7) for job in step.jobs]
            return proceed()

        app.around(enqueue=stamp)
        app.events.subscribe("job.enqueued", lambda event: self.made.append(str(event.job_id)))


def check(app: App, seen: Seen, *ids: Any) -> None:
    """Check that exactly these jobs passed the hooks, were published, and are stored as the hooks left them."""
    assert seen.steps == [f"begin send {len(ids)}", "end send"]
    assert seen.made == [str(id) for id in ids]
    for id in ids:
        job = app.jobs.get(id)
        assert (job.headers, job.priority) == ({"trace": "of send"}, 7)


def test_hooks_see_enqueue(app: App) -> None:
    seen = Seen(app)
    check(app, seen, _send(app).enqueue(**TO).id)


def test_hooks_see_enqueue_many_with_few_and_with_many_jobs(app: App) -> None:
    seen = Seen(app)
    check(app, seen, *[job.id for job in _send(app).enqueue_many([TO, TO])])
    seen.steps.clear()
    seen.made.clear()
    check(app, seen, *[job.id for job in _send(app).enqueue_many([TO] * 500)])


def test_hooks_see_aenqueue_and_aenqueue_many(app: App) -> None:
    seen = Seen(app)

    async def main() -> None:
        check(app, seen, (await _send(app).aenqueue(**TO)).id)
        seen.steps.clear()
        seen.made.clear()
        check(app, seen, *[job.id for job in await _send(app).aenqueue_many([TO, TO])])

    asyncio.run(main())


def test_aenqueue_works_with_context_managers_only(app: App) -> None:
    steps: list[str] = []

    @contextmanager
    def stamp(step: HookStep) -> Iterator[None]:
        step.headers["n"] = "1"
        yield
        steps.append("ended")

    app.around(enqueue=stamp)
    job = asyncio.run(_send(app).aenqueue(**TO))
    assert (job.headers, app.jobs.get(job.id).headers, steps) == ({"n": "1"}, {"n": "1"}, ["ended"])


def test_hooks_see_a_trigger_of_a_schedule(app: App) -> None:
    app.schedules.add("send", Manual(), key="m", args=TO)
    seen = Seen(app)
    check(app, seen, app.schedules.trigger("m").id)


def test_hooks_see_a_backfill_of_a_schedule(app: App) -> None:
    app.schedules.add("send", Every(HOUR), key="m", args=TO)
    seen = Seen(app)
    app.testing().advance(3 * HOUR)
    done = app.schedules.backfill("m", MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR)
    jobs = app.jobs.list(task="send", sort="oldest").items
    assert len(done.fires) == 2
    check(app, seen, *[job.id for job in jobs])


def test_hooks_see_a_fire_of_a_schedule(app: App) -> None:
    app.schedules.add("send", Every(HOUR), key="m", args=TO)
    seen = Seen(app)
    testing = app.testing()
    testing.advance(HOUR)
    testing.fire()
    check(app, seen, *[job.id for job in app.jobs.list(task="send").items])


def test_hooks_see_a_trigger_of_a_definition(app: App) -> None:
    app.definitions.save("d", "send", args=TO)
    seen = Seen(app)
    check(app, seen, app.definitions.trigger("d").id)


def test_hooks_see_a_job_that_replaces_another(app: App) -> None:
    seen = Seen(app)
    once = _send(app).using(unique=Unique(by=("to",), on_conflict="replace"))
    first = once.enqueue(**TO)
    seen.steps.clear()
    second = once.enqueue(**TO)
    assert seen.made == [str(first.id), str(second.id)]
    assert app.jobs.get(second.id).headers == {"trace": "of send"}


def test_hooks_see_a_job_that_follows_another(app: App) -> None:
    send = _send(app)

    @app.task
    def parent(ctx: Context) -> None:
        ctx.then(send, **TO)

    parent.enqueue()
    seen = Seen(app)
    app.testing().drain(raise_errors=True)
    check(app, seen, *[job.id for job in app.jobs.list(task="send").items])


def test_hooks_see_a_job_on_the_callers_own_connection(tmp_path: Path) -> None:
    with App(f"sqlite:///{tmp_path}/jobs.db?shared=1", clock=ManualClock(MIDNIGHT), migrate=True) as app:
        send = _declare(app)
        seen = Seen(app)
        connection = sqlite3.connect(tmp_path / "jobs.db")
        with connection:
            job = send.using(connection=connection).enqueue(**TO)
        connection.close()
        check(app, seen, job.id)


def test_a_hook_that_refuses_a_fire_does_not_stop_other_schedules(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    def other() -> None: ...

    app.schedules.add("send", Every(HOUR), key="refused", args=TO)
    app.schedules.add("other", Every(HOUR), key="made")

    @app.middleware(only="enqueue")
    def refuse(step: HookStep, proceed: Callable[[], Any]) -> Any:
        if step.task == "send":
            raise PermissionError("not now")
        return proceed()

    testing = app.testing()
    testing.advance(HOUR)
    testing.fire()
    assert [job.task for job in app.jobs.list().items] == ["other"]
    assert "not now" in caplog.text
    with pytest.raises(PermissionError):
        app.schedules.trigger("refused")


def test_fires_of_tasks_of_another_app_skip_the_hooks(app: App) -> None:
    app.schedules.add("send", Every(HOUR), key="m", args=TO)
    with App(app.store, clock=app.clock) as other:
        seen = Seen(other)
        app.testing().advance(HOUR)
        other.testing().fire()
        (job,) = app.jobs.list(task="send").items
        assert (seen.steps, seen.made, job.headers) == ([], [str(job.id)], {})


def test_a_hook_may_not_change_the_number_of_triggered_jobs(app: App) -> None:
    app.definitions.save("d", "send", args=TO)

    @app.middleware(only="enqueue")
    def doubles(step: HookStep, proceed: Callable[[], Any]) -> Any:
        proceed()
        step.jobs = [*step.jobs, *step.jobs]
        return []

    with pytest.raises(UsageError, match="may only change them"):
        app.definitions.trigger("d")


# Headers ---------------------------------------------------------------------------------------------------------------


def test_headers_reach_the_code_that_runs_the_job(app: App) -> None:
    found: list[dict[str, str]] = []

    @app.task
    def work(ctx: Context) -> None:
        found.append(dict(ctx.headers))

    @contextmanager
    def look(job: JobRow) -> Iterator[None]:
        found.append(dict(job.details.headers))
        yield

    app.around(execute=look)
    work.using(headers={"a": "1"}).using(headers={"b": "2"}).enqueue()
    work.enqueue()
    app.testing().drain(raise_errors=True)
    assert found == [{"a": "1", "b": "2"}] * 2 + [{}] * 2


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"a": 1}, BadSettings),
        (["a"], BadSettings),
        ({"": "x"}, BadSettings),
        ({"a": "\0"}, BadSettings),
        ({"a": "x" * 5000}, PayloadTooLarge),
    ],
)
def test_headers_that_cannot_be_stored_are_refused(headers: Any, error: type[Exception]) -> None:
    with App("memory://") as app:

        @app.task
        def work() -> None: ...

        with pytest.raises(error):
            work.using(headers=headers)

        @contextmanager
        def stamp(step: HookStep) -> Iterator[None]:
            step.headers = headers
            yield

        app.around(enqueue=stamp)
        with pytest.raises(error):
            work.enqueue()
        assert app.jobs.count() == 0


def test_headers_of_a_call_and_of_a_hook_are_limited_together() -> None:
    with App("memory://") as app:

        @app.task
        def work() -> None: ...

        @contextmanager
        def stamp(step: HookStep) -> Iterator[None]:
            step.headers["b"] = "x" * 3000
            yield

        app.around(enqueue=stamp)
        with pytest.raises(PayloadTooLarge, match="headers takes"):
            work.using(headers={"a": "x" * 3000}).enqueue()


# Events of actions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def heard(app: App) -> list[tuple[str, str, object]]:
    """Name, state and reason of every event except those of enqueues and workers."""
    found: list[tuple[str, str, object]] = []

    def hear(event: Event) -> None:
        if event.name not in ("job.enqueued", "job.started", "job.finished", "job.put_off"):
            assert event.data["by"]
            found.append((event.name, str(event.state), event.data.get("reason")))

    app.events.subscribe("job.*", hear)
    return found


def test_actions_on_one_job_are_published(app: App, heard: list[tuple[str, str, object]]) -> None:
    @app.task
    def asks() -> None:
        raise Review("look")

    send = _send(app)
    testing = app.testing()
    later = send.using(delay=HOUR).enqueue(**TO)
    later.reschedule(2 * HOUR)
    later.run_now()
    later.cancel("no need")
    later.retry()
    testing.drain()
    later.refresh().delete()
    for act in ("approve", "reject", "rerun"):
        job = asks.enqueue()
        testing.drain()
        getattr(job.refresh(), act)()
        testing.drain()
    assert heard == [
        ("job.rescheduled", "scheduled", "rescheduled"),
        ("job.run_now", "pending", "run now"),
        ("job.cancelled", "cancelled", "no need"),
        ("job.retried", "pending", "retried manually"),
        ("job.deleted", "completed", None),
        ("job.approved", "completed", "approved"),
        ("job.rejected", "failed", "rejected"),
        ("job.rerun", "pending", "rerun manually"),
    ]


def test_cancelling_a_running_job_is_published_once_as_a_request(
    app: App, heard: list[tuple[str, str, object]]
) -> None:
    @app.task
    def stops(ctx: Context) -> None:
        app.jobs.get(ctx.job_id).cancel("stop it")
        app.jobs.get(ctx.job_id).cancel("again")
        app.jobs.cancel(ids=[ctx.job_id])

    stops.enqueue()
    app.testing().drain()
    assert heard == [("job.cancel_requested", "running", "stop it")]


def test_bulk_actions_are_published_for_each_job(app: App, heard: list[tuple[str, str, object]]) -> None:
    _send(app).enqueue_many([TO, TO])
    app.jobs.cancel(task="send")
    app.jobs.retry(task="send")
    app.jobs.cancel(task="send")
    app.jobs.delete(task="send")
    assert [name for name, _, _ in heard] == [
        name for name in ("job.cancelled", "job.retried", "job.cancelled", "job.deleted") for _ in range(2)
    ]
    assert {state for name, state, _ in heard if name == "job.retried"} == {"pending"}


def test_a_subscription_by_app_on_lasts_until_it_is_closed(app: App) -> None:
    names: list[str] = []
    with app.on("job.*", lambda event: names.append(event.name)):
        _send(app).enqueue(**TO)
    _send(app).enqueue(**TO)
    assert names == ["job.enqueued"]


def _send(app: App) -> Any:

    return app.bound_task("send")


def _declare(app: App) -> Any:
    @app.task
    def send(to: str, size: int = 1) -> None: ...

    return send
