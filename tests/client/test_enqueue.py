"""Tests of declaring and enqueueing tasks, and of the errors for wrong input."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry import trace

from tidemill import Exponential, Unique
from tidemill.app import App
from tidemill.domain.retention import Selection, Selector
from tidemill.domain.states import JobState
from tidemill.engine.context import Context
from tidemill.errors import (
    BadArguments,
    BadSettings,
    DuplicateTask,
    JobExists,
    PayloadTooLarge,
    ResultNotKept,
    StoreUnavailable,
    TaskNotFound,
)
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.tasks.events import Event
from tidemill.tasks.middleware import HookStep


def test_a_job_has_the_requested_options(app: App) -> None:
    @app.task(
        queue="media",
        priority=5,
        retry=Exponential(max_attempts=7),
        timeout=timedelta(minutes=10),
        tags=["export"],
    )
    def backup(destination: str, depth: int = 3) -> int:
        return depth

    job = backup.using(metadata={"user": 7}, reference=("user", "42"), correlation_id="c-1").enqueue(
        "/backup", depth=2
    )
    stored = app.jobs.get(job.id)
    for handle in (job, stored):
        assert (handle.task, handle.queue, handle.priority, handle.max_attempts) == ("backup", "media", 5, 7)
        assert handle.args == {"destination": "/backup", "depth": 2}
        assert handle.status is JobState.PENDING
        assert (handle.tags, handle.metadata, handle.reference) == (("export",), {"user": 7}, ("user", "42"))
        assert handle.correlation_id == "c-1"
        assert handle.attempt == 0
        assert handle.tenant == "default"
    assert stored == job


def test_a_call_just_runs_the_function(app: App) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    assert double(21) == 42
    assert app.jobs.count() == 0


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"delay": timedelta(minutes=5)}, JobState.SCHEDULED),
        ({"run_after": timedelta(minutes=5)}, JobState.SCHEDULED),
        ({"run_after": datetime(2999, 1, 1, tzinfo=UTC)}, JobState.SCHEDULED),
        ({"run_after": datetime(2000, 1, 1, tzinfo=UTC)}, JobState.PENDING),
    ],
)
def test_a_future_job_is_scheduled_and_a_past_one_is_pending(
    app: App, options: dict[str, object], status: JobState
) -> None:
    @app.task
    def nothing() -> None: ...

    job = nothing.using(**options).enqueue()  # type: ignore[arg-type]
    assert job.status is status
    assert job.refresh().status is status


def test_bad_arguments_are_refused_before_anything_is_written(app: App) -> None:
    @app.task
    def backup(destination: str, depth: int) -> None: ...

    with pytest.raises(BadArguments) as caught:
        backup.enqueue(destination=1, depth="2")  # type: ignore[arg-type]
    assert "destination" in str(caught.value)
    assert "depth" in str(caught.value)
    with pytest.raises(BadArguments):
        backup.enqueue()  # type: ignore[call-arg]
    assert app.jobs.count() == 0


def test_oversized_arguments_raise_payload_too_large(app: App) -> None:
    @app.task
    def store(text: str) -> None: ...

    with pytest.raises(PayloadTooLarge, match="store the data elsewhere"):
        store.enqueue(text="x" * (64 * 1024 * 1024))


def test_enqueue_many_stores_all_jobs_or_none(app: App) -> None:
    @app.task
    def add(number: int) -> None: ...

    jobs = add.enqueue_many({"number": n} for n in range(2_500))
    assert len(jobs) == 2_500
    assert app.jobs.count(task=add) == 2_500
    with pytest.raises(BadArguments):
        add.enqueue_many([{"number": 1}, {"number": "two"}])
    assert app.jobs.count() == 2_500


def test_a_unique_job_is_returned_instead_of_duplicated(app: App) -> None:
    @app.task(unique=Unique(by=("user",)))
    def report(user: int, day: str) -> None: ...

    first = report.enqueue(user=1, day="monday")
    assert report.enqueue(user=1, day="tuesday") == first
    assert report.enqueue(user=2, day="monday") != first
    strict = report.using(unique=Unique(by=("user",), on_conflict="raise"))
    with pytest.raises(JobExists):
        strict.enqueue(user=1, day="wednesday")


def test_a_unique_job_can_be_replaced_or_postponed(app: App) -> None:
    @app.task
    def sync(user: int, version: int = 1) -> None: ...

    replacing = sync.using(unique=Unique(by=("user",), on_conflict="replace"))
    first = replacing.enqueue(user=1, version=1)
    second = replacing.enqueue(user=1, version=2)
    assert second != first
    assert first.refresh().status is JobState.CANCELLED
    assert second.refresh().args["version"] == 2

    extending = sync.using(unique=Unique(by=("user",), on_conflict="extend"))
    early = extending.using(delay=timedelta(minutes=1)).enqueue(user=2)
    late = extending.using(delay=timedelta(minutes=9)).enqueue(user=2)
    assert late == early
    assert late.refresh().status is JobState.SCHEDULED
    assert late.run_at > datetime.now(UTC) + timedelta(minutes=8)


def test_concurrent_threads_share_commits_and_lose_no_job(app: App) -> None:
    @app.task
    def add(number: int) -> None: ...

    def produce(start: int) -> None:
        for number in range(start, start + 25):
            add.enqueue(number=number)

    threads = [threading.Thread(target=produce, args=(n * 25,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(job.args["number"] for job in app.jobs.stream(task="add")) == list(range(200))


def test_concurrent_coroutines_share_commits_and_lose_no_job(app: App) -> None:
    @app.task
    def add(number: int) -> None: ...

    async def main() -> None:
        await asyncio.gather(*(add.aenqueue(number=n) for n in range(100)))
        await add.aenqueue_many({"number": n} for n in range(100, 150))

    asyncio.run(main())
    assert sorted(job.args["number"] for job in app.jobs.stream(task="add")) == list(range(150))


def test_a_recipe_sets_defaults_and_the_call_overrides_them(app: App) -> None:
    @app.task
    def send(to: str) -> None: ...

    nightly = app.recipe(queue="night", metadata={"source": "cron"}, tags=["nightly"])
    job = nightly(send).enqueue(to="ada")
    assert (job.queue, job.metadata, job.tags) == ("night", {"source": "cron"}, ("nightly",))
    own = nightly(send.using(queue="now", metadata={"by": "hand"})).enqueue(to="ada")
    assert own.queue == "now"
    assert own.metadata == {"source": "cron", "by": "hand"}
    with pytest.raises(BadSettings):
        app.recipe(quue="typo")  # type: ignore[call-arg]


def test_a_tenant_scope_applies_to_everything_inside(app: App) -> None:
    @app.task
    def nothing() -> None: ...

    with app.tenant("acme"):
        job = nothing.enqueue()
        assert job.tenant == "acme"
        assert app.jobs.count() == 1
    assert app.jobs.count() == 0
    assert app.jobs.count(tenant="acme") == 1
    assert app.jobs.count(tenant="*") == 1


def test_middleware_wraps_an_enqueue_and_may_refuse_it(app: App) -> None:
    seen: list[tuple[str, str, int]] = []

    @app.middleware
    def note(step: HookStep, proceed: object) -> object:
        seen.append((step.kind, step.task, len(step.jobs)))
        if step.task == "forbidden":
            raise PermissionError("not this one")
        return proceed()  # type: ignore[operator]

    @app.task
    def fine() -> None: ...

    @app.task
    def forbidden() -> None: ...

    fine.enqueue()
    fine.enqueue_many([{}, {}])
    with pytest.raises(PermissionError):
        forbidden.enqueue()
    assert seen == [("enqueue", "fine", 1), ("enqueue", "fine", 2), ("enqueue", "forbidden", 1)]
    assert app.jobs.count() == 3


def test_event_handlers_are_called_and_may_enqueue(app: App) -> None:
    heard: list[Event] = []

    @app.task
    def index(document: str) -> None: ...

    @app.task
    def publish(document: str) -> None: ...

    @app.events.on("job.enqueued")
    def follow(event: Event) -> None:
        heard.append(event)
        if event.task == "publish":
            index.enqueue(document="d")

    job = publish.enqueue(document="d")
    assert [event.task for event in heard] == ["publish", "index"]
    assert heard[0].job_id == job.id
    assert app.jobs.count(task="index") == 1


def test_a_job_inherits_the_trace_it_was_enqueued_in(app: App) -> None:
    @app.task
    def nothing() -> None: ...

    span = trace.NonRecordingSpan(trace.SpanContext(trace_id=0xABC, span_id=1, is_remote=False))
    with trace.use_span(span):
        inside = nothing.enqueue()
        named = nothing.using(correlation_id="mine").enqueue()
    outside = nothing.enqueue()
    assert app.jobs.get(inside.id).correlation_id == f"{0xABC:032x}"
    assert named.correlation_id == "mine"
    assert outside.correlation_id == str(outside.id)


def test_unknown_duplicate_and_misspelled_task_names_are_refused(app: App) -> None:
    @app.task
    def send_mail() -> None: ...

    with pytest.raises(TaskNotFound, match="send_mail"):
        app.registry.get("send_mial")
    with pytest.raises(TaskNotFound, match="the app has 1 task; import the module that declares this one"):
        app.registry.get("invoice")
    with pytest.raises(DuplicateTask, match="give one of them another name="):

        @app.task(name="send_mail")
        def other() -> None: ...

    with pytest.raises(BadSettings, match="quue"):
        app.task(quue="x")(send_mail)  # type: ignore[call-overload]


def test_the_context_is_not_a_task_argument(app: App) -> None:
    @app.task
    def first(ctx: Context, destination: str) -> None: ...

    @app.task
    def last(destination: str, ctx: Context) -> None: ...

    assert first.enqueue(destination="/x").args == {"destination": "/x"}
    assert last.enqueue(destination="/x").args == {"destination": "/x"}  # type: ignore[call-arg]


def test_if_one_store_cannot_be_opened_the_others_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Store] = []

    def noted(url: str, **how: Any) -> Store:
        opened.append(open_store(url, **how))
        return opened[-1]

    monkeypatch.setattr("tidemill.app_settings.open_store", noted)
    given = open_store("memory://")
    with pytest.raises(BadSettings, match="unknown store redis"):
        App(stores={"archive": given, "default": "memory://", "jobs": "redis://x"})
    (ours,) = opened
    with pytest.raises(StoreUnavailable, match="closed"):
        ours.lanes()
    assert given.lanes() == []  # a store that the caller passed in stays open
    given.close()


def test_the_limits_of_an_app_apply_to_its_tasks() -> None:
    with App("memory://", args_limit=20, max_args=25, result_limit=30, large_results="refuse") as app:

        @app.task
        def echo(text: str) -> str:
            return text * 4

        @app.task(result_limit=100)
        def shout(text: str) -> str:
            return text * 4

        with pytest.raises(PayloadTooLarge, match="the limit is 25"):
            echo.enqueue(text="x" * 20)
        echoed, shouted = echo.enqueue(text="x" * 8), shout.enqueue(text="x" * 8)
        app.testing().drain()
        assert shouted.result() == "x" * 32
        assert echoed.refresh().status == "completed"
        with pytest.raises(ResultNotKept, match=r"the limit is 30 bytes \(result_limit\)"):
            echoed.result()


def test_a_wrong_setting_is_reported_at_once() -> None:
    with pytest.raises(BadSettings, match="unknown setting 'stor'; expected one of"):
        App(stor="memory://")  # type: ignore[call-arg]
    with pytest.raises(BadSettings, match="unknown store redis"):
        App("redis://x")
    with App("memory://") as app:

        @app.task
        def nothing() -> None: ...

        with pytest.raises(BadSettings, match="there is no store named 'elsewhere'"):
            nothing.using(store="elsewhere").enqueue()


def test_a_unique_job_is_replaced_within_its_window_too(app: App) -> None:
    """The cancelled job must not block its successor, or no job would run at all."""

    @app.task(unique=Unique(by=("user",), within=timedelta(hours=1), on_conflict="replace"))
    def sync(user: int, version: int) -> int:
        return version

    first = sync.enqueue(user=1, version=1)
    second = sync.enqueue(user=1, version=2)
    third = sync.enqueue(user=1, version=3)
    assert len({first.id, second.id, third.id}) == 3
    assert first.refresh().status is second.refresh().status is JobState.CANCELLED
    app.testing().drain()
    assert third.refresh().status is JobState.COMPLETED
    # The job has ended but its window has not, so there is nothing to replace.
    assert sync.enqueue(user=1, version=4) == third


def test_an_archived_unique_job_still_holds_its_key_within_its_window(app: App) -> None:
    @app.task(unique=Unique(by=("user",), within=timedelta(days=400)))
    def report(user: int) -> int:
        return user

    first = report.using(tags=["kept"]).enqueue(user=1)
    app.testing().drain()
    assert app.archive.run(older_than=timedelta(0)).archived == 1
    again = report.enqueue(user=1)
    assert again.id == first.id
    assert (again.status, again.tags) == (JobState.COMPLETED, ("kept",))
    documents = app.store.archived_due(Selection(Selector(), "archive"))
    assert len(app.store.remove_archived(documents)) == 1
    with pytest.raises(JobExists, match=f"{first.id}.*no longer stored"):
        report.enqueue(user=1)
    assert app.jobs.count() == 0


def test_one_bad_call_among_many_stores_nothing(app: App) -> None:
    @app.task
    def add(number: int) -> None: ...

    with pytest.raises(BadArguments, match="number"):
        add.enqueue_many([*({"number": n} for n in range(900)), {"number": "two"}])
    assert app.jobs.count() == 0
    jobs = add.enqueue_many({"number": n} for n in range(900))
    assert [job.args["number"] for job in jobs] == list(range(900))
    assert app.jobs.count(task=add) == 900
