"""Tests of job handles: reading, waiting and acting."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from tidemill import Fixed, ManualClock, PermanentError, Review
from tidemill.app import App
from tidemill.client.jobs import handle
from tidemill.client.jobs.api import Acted
from tidemill.client.jobs.handle import Job
from tidemill.domain.cluster import Worker
from tidemill.domain.job import Move
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.context import Context
from tidemill.errors import (
    BadFilter,
    BadSettings,
    IllegalTransition,
    JobCancelled,
    JobFailed,
    JobNotFound,
    UsageError,
    WaitTimeout,
)
from tidemill.ids import new_id


def test_the_result_is_the_return_value_of_the_task(app: App) -> None:
    @app.task
    def halve(number: int) -> float:
        return number / 2

    job = halve.enqueue(number=5)
    app.testing().drain()
    assert job.result(timeout=10) == 2.5
    assert job.value == 2.5
    assert job.progress == 1.0
    assert job.ended


def test_a_result_can_be_awaited_in_two_ways(app: App) -> None:
    @app.task
    async def greet(name: str) -> str:
        await asyncio.sleep(0)
        return f"hello {name}"

    async def main() -> tuple[str, str]:
        job = await greet.aenqueue(name="ada")
        await asyncio.to_thread(app.testing().drain)
        return await job, await job.aresult(timeout=10)

    assert asyncio.run(main()) == ("hello ada", "hello ada")


def test_waiting_ends_when_another_thread_finishes_the_job(app: App) -> None:
    @app.task
    def one() -> int:
        return 1

    job = one.enqueue()
    runner = threading.Timer(0.05, lambda: app.testing().drain())
    runner.start()
    assert job.result(timeout=20) == 1
    runner.join()


def test_the_result_of_a_failed_job_raises_its_error(app: App) -> None:
    @app.task
    def fail() -> None:
        raise PermanentError("no such account")

    job = fail.enqueue()
    app.testing().drain()
    with pytest.raises(JobFailed, match="no such account"):
        job.result(timeout=10)
    assert job.status is JobState.FAILED
    assert job.error is not None
    assert job.error.type.endswith("PermanentError")


def test_a_wait_times_out(app: App) -> None:
    @app.task
    def never() -> None: ...

    job = never.enqueue()
    with pytest.raises(WaitTimeout, match=r"still pending after 0.05 seconds: No worker is alive; start one"):
        job.result(timeout=0.05)
    with pytest.raises(WaitTimeout, match="No worker is alive"):
        asyncio.run(job.aresult(timeout=timedelta(milliseconds=50)))


@pytest.mark.parametrize("awaited", [True, False])
def test_waiting_without_live_workers_logs_a_warning(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, awaited: bool
) -> None:
    monkeypatch.setattr(handle, "SILENT", 0.01)

    @app.task
    def never() -> None: ...

    job = never.enqueue()
    with pytest.raises(WaitTimeout):
        asyncio.run(job.aresult(timeout=0.3)) if awaited else job.result(timeout=0.3)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "tidemill.client"]
    assert line == f"still waiting for job {job.id} of task never: No worker is alive; start one."


def test_why_returns_the_reasons_why_a_job_is_not_running(app: App) -> None:
    @app.task
    def never() -> None: ...

    job = never.using(delay=timedelta(hours=1)).enqueue()
    assert [reason.code for reason in job.why()] == ["scheduled"]
    assert asyncio.run(job.awhy()) == job.why() == app.jobs.why(job.id)
    assert asyncio.run(app.jobs.awhy(str(job.id)))[0].code == "scheduled"


def test_a_pending_job_is_cancelled_at_once(app: App) -> None:
    @app.task
    def never() -> None: ...

    job = never.enqueue().cancel("changed my mind")
    assert job.status is JobState.CANCELLED
    with pytest.raises(JobCancelled, match="changed my mind"):
        job.result(timeout=10)
    with pytest.raises(IllegalTransition, match="it is cancelled"):
        job.cancel()


def test_an_ended_job_can_be_retried_and_deleted(app: App) -> None:
    broken = True

    @app.task(retry=None)
    def fragile() -> str:
        if broken:
            raise ValueError("not yet")
        return "well"

    job = fragile.enqueue()
    testing = app.testing()
    testing.drain()
    assert job.refresh().status is JobState.FAILED
    broken = False
    job.retry()
    testing.drain()
    assert job.result(timeout=10) == "well"
    assert [execution.state for execution in job.executions()] == [
        ExecutionState.SUCCEEDED,
        ExecutionState.FAILED,
    ]
    job.delete()
    with pytest.raises(JobNotFound):
        app.jobs.get(job.id)


@pytest.mark.parametrize(("word", "status"), [("approve", JobState.COMPLETED), ("reject", JobState.FAILED)])
def test_a_review_is_approved_or_rejected(app: App, word: str, status: JobState) -> None:
    @app.task
    def draft() -> dict[str, int]:
        raise Review("please look", output={"page": 1})

    job = draft.enqueue()
    app.testing().drain()
    assert job.refresh().status is JobState.REVIEW_NEEDED
    assert job.reason == "please look"
    getattr(job, word)("as I said")
    assert job.status is status
    assert job.reason == "as I said"
    if status is JobState.COMPLETED:
        assert job.value == {"page": 1}


def test_children_have_their_parent_and_share_its_correlation_id(app: App) -> None:
    @app.task
    def child(number: int) -> None: ...

    @app.task
    def parent() -> None:
        child.enqueue_many([{"number": 1}, {"number": 2}])
        child.enqueue(number=3)

    job = parent.using(correlation_id="order-7").enqueue()
    app.testing().drain()
    children = job.children()
    assert [each.args["number"] for each in children] == [1, 2, 3]
    assert {each.correlation_id for each in children} == {"order-7"}
    assert children[0].parent() == job
    assert app.jobs.count(correlation_id="order-7") == 4


def test_progress_and_logs_are_visible_from_outside(app: App) -> None:
    @app.task
    def count(ctx: Context, upto: int) -> int:
        for _ in ctx.track(range(upto), message="counting"):
            with ctx.stage("step"):
                pass
        ctx.log("counted", items=upto)
        return upto

    job = count.enqueue(upto=4)
    seen: list[float] = []
    with job.on_progress(lambda now: seen.append(now.progress)):
        app.testing().drain()
        job.result(timeout=10)
    last = list(job.watch())[-1]
    assert last.status is JobState.COMPLETED
    assert "counted" in [entry.message for entry in job.logs()]
    assert job.logs(level="error") == []
    assert asyncio.run(job.alogs(level="debug")) == job.logs()
    with pytest.raises(BadFilter, match="unknown level 'loud'; expected one of debug, info, warning, error"):
        job.logs(level="loud")
    assert job.refresh().progress_percent == 100
    assert job.updated_at is not None
    assert job.started_at is not None
    assert job.finished_at is not None
    assert job.started_at <= job.updated_at <= job.finished_at
    assert seen
    assert seen[-1] == 1.0


def test_many_jobs_are_cancelled_retried_and_deleted_by_filter(app: App) -> None:
    @app.task
    def one() -> None: ...

    @app.task
    def two() -> None: ...

    one.enqueue_many([{}] * 30)
    two.enqueue_many([{}] * 5)
    assert app.jobs.cancel(task="one", reason="too many").done == 30
    assert app.jobs.counts() == {JobState.CANCELLED: 30, JobState.PENDING: 5}
    assert app.jobs.retry(task=one).done == 30
    assert app.jobs.counts() == {JobState.PENDING: 35}
    app.jobs.cancel(queue="default")
    assert app.jobs.delete(status="cancelled").done == 35
    assert app.jobs.count() == 0


def test_a_bulk_cancel_starts_with_the_newest_job(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def one() -> None: ...

    ids = [job.id for job in one.enqueue_many([{}] * 25)]
    monkeypatch.setattr("tidemill.client.jobs.api.TOGETHER", 10)
    worker = app.store.register(Worker(new_id(), "a worker"), lease=timedelta(hours=1))
    moved: list[UUID] = []
    move = app.store.move

    def noted(moves: Sequence[Move], **how: Any) -> frozenset[UUID]:
        moved.extend(each.id for each in moves)
        if len(moved) == 10:  # a worker claims the oldest jobs at the same time
            app.store.claim(ClaimRequest(worker.id, app.store.lanes(), 5))
        return move(moves, **how)

    monkeypatch.setattr(app.store, "move", noted)
    assert app.jobs.cancel(task="one") == Acted(done=20, skipped=5)
    assert moved == ids[::-1]
    assert {job.id for job in app.jobs.list(status="cancelled").items} == set(ids[5:])


def test_a_callback_that_raises_does_not_affect_other_subscribers(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    def one() -> int:
        return 1

    job, other = one.enqueue(), one.enqueue()
    called = threading.Event()

    def broken(now: Job[Any]) -> None:
        called.set()
        raise ZeroDivisionError("a callback of the user's")

    with job.on_progress(broken):
        assert called.wait(30)
        app.testing().drain()
        assert other.result(timeout=30) == 1
        assert job.result(timeout=30) == 1
    assert "cannot notify the watchers of job" in caplog.text


def test_a_loop_closed_during_a_watch_does_not_affect_other_subscribers(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    def one() -> int:
        return 1

    job = one.enqueue()
    watching = job.awatch()

    async def begin() -> None:
        await anext(watching)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()  # its watch never ended
    app.testing().drain()
    assert job.result(timeout=30) == 1
    assert "cannot notify" not in caplog.text
    asyncio.run(cast("AsyncGenerator[Any, None]", watching).aclose())


def test_a_subscription_to_an_ended_job_is_called_exactly_once(app: App) -> None:
    @app.task
    def one() -> None: ...

    job = one.enqueue()
    app.testing().drain()
    for _ in range(20):
        heard: list[JobState] = []
        over = threading.Event()

        def hear(now: Job[Any], heard: list[JobState] = heard, over: threading.Event = over) -> None:
            heard.append(now.status)
            over.set()

        job.on_progress(hear)
        assert over.wait(30)
        assert heard == [JobState.COMPLETED]


@pytest.mark.parametrize("name", ["ids", "status", "task", "queue"])
def test_an_empty_filter_list_matches_no_job_in_a_bulk_action(app: App, name: str) -> None:
    @app.task
    def one() -> None: ...

    one.enqueue_many([{}] * 2)
    empty: dict[str, Any] = {name: []}
    assert app.jobs.cancel(**empty).done == 0
    assert app.jobs.cancel(**{"queue": "default", **empty}).done == 0
    assert app.jobs.delete(**empty).done == 0
    assert app.jobs.retry(**empty).done == 0
    assert app.jobs.counts() == {JobState.PENDING: 2}


@pytest.mark.parametrize(
    "condition", [{}, {"task": None}, {"tag": None, "tenant": "*"}, {"metadata": {}}, {"tag": ""}]
)
def test_a_bulk_action_without_a_filter_is_refused(app: App, condition: dict[str, Any]) -> None:
    for act in (app.jobs.cancel, app.jobs.retry, app.jobs.delete):
        with pytest.raises(BadFilter):
            act(**condition)


def test_an_empty_list_of_ids_matches_no_job(app: App) -> None:
    @app.task
    def one() -> None: ...

    one.enqueue()
    assert app.jobs.list(ids=[]).items == []
    assert list(app.jobs.stream(ids=[])) == []
    assert app.jobs.count(ids=[]) == 0


def test_jobs_are_found_counted_and_changed_by_text_search(app: App) -> None:
    @app.task
    def greet(name: str) -> None: ...

    greet.enqueue_many([{"name": "Ada"}] * 3 + [{"name": "Grace"}] * 2)
    assert len(app.jobs.list(text="ada").items) == 3
    assert app.jobs.list(text="ada", text_in_args=False).items == []
    assert app.jobs.count(text="ADA") == 3
    assert app.jobs.counts(text="a", most=4) == {JobState.PENDING: 4}
    assert app.jobs.counts(most=4) == {JobState.PENDING: 4}
    assert app.jobs.cancel(text="ada").done == 3
    assert app.jobs.counts() == {JobState.CANCELLED: 3, JobState.PENDING: 2}


def test_jobs_are_found_and_counted_by_argument_error_worker_and_run_time(app: App) -> None:
    @app.task(retry=None)
    def pay(account: int, urgent: bool = False) -> None:
        if account == 2:
            raise ConnectionError("no")

    paid, failed = pay.enqueue(account=1, urgent=True), pay.enqueue(account=2)
    app.testing().drain()
    worker = paid.refresh().row.worker

    def found(**where: Any) -> list[UUID]:
        return sorted(job.id for job in app.jobs.list(**where).items)

    assert found(args={"account": 2}) == [failed.id]
    assert found(args={"account": "1", "urgent": True}) == [paid.id]
    assert found(args={"account": 1, "urgent": False}) == []
    assert found(error="ConnectionError", task="pay") == [failed.id]
    assert found(worker=worker) == found(worker=str(worker)) == [paid.id, failed.id]
    assert found(took_over="1d") == []
    assert app.jobs.count(args={"account": 1}) == 1
    assert app.jobs.retry(error="ConnectionError").done == 1
    with pytest.raises(BadFilter, match="there is no worker 'nobody'"):
        app.jobs.list(worker="nobody")
    with pytest.raises(BadFilter, match="cannot be searched for"):
        app.jobs.list(args={"account": [1]})
    assert app.archive.search(text="ada").items == []


def test_lists_are_paged_and_filtered(app: App) -> None:
    @app.task
    def note(n: int) -> None: ...

    for n in range(5):
        note.using(tags=["even"] if n % 2 == 0 else [], metadata={"n": n}).enqueue(n=n)
    page = app.jobs.list(limit=2)
    assert [job.args["n"] for job in page.items] == [4, 3]
    assert [job.args["n"] for job in app.jobs.list(limit=2, cursor=page.next).items] == [2, 1]
    assert app.jobs.count(tag="even") == 3
    assert [job.args["n"] for job in app.jobs.stream(batch=2, metadata={"n": 3})] == [3]
    assert app.jobs.count(task="note", status=["pending", "running"]) == 5


def test_every_method_that_reads_the_store_has_an_async_variant() -> None:
    def shape(method: Any) -> list[tuple[str, Any, Any]]:
        found = inspect.signature(method)
        return [(p.name, p.kind, p.default) for p in found.parameters.values()]

    for name in (
        "refresh",
        "result",
        "cancel",
        "retry",
        "executions",
        "logs",
        "children",
        "parent",
        "approve",
        "reject",
        "delete",
    ):
        assert shape(getattr(Job, name)) == shape(getattr(Job, f"a{name}"))


def test_run_now_makes_a_scheduled_job_pending(app: App) -> None:
    @app.task
    def work() -> int:
        return 1

    job = work.using(delay=timedelta(hours=1)).enqueue()
    assert job.run_now().status is JobState.PENDING
    with pytest.raises(IllegalTransition, match=r"cannot run_now .* it is pending"):
        asyncio.run(job.arun_now())
    app.testing().drain()
    assert job.result(timeout=10) == 1
    assert "job.run_now" in [record.entry.action for record in app.store.audit(tenant="*")]


def test_a_job_that_has_not_started_can_be_rescheduled(app: App) -> None:
    @app.task
    def work() -> None: ...

    job = work.enqueue()
    later = (app.store.now() + timedelta(hours=2)).replace(microsecond=0)
    assert job.reschedule(later).status is JobState.SCHEDULED
    assert abs(job.run_at - later) < timedelta(seconds=5)
    first = job.run_at
    assert asyncio.run(job.areschedule(timedelta(hours=5))).run_at > first + timedelta(hours=2)
    with pytest.raises(UsageError, match=r"to the past; call run_now\(\)"):
        job.reschedule(app.store.now() - timedelta(seconds=1))
    with pytest.raises(BadSettings, match="has no time zone"):
        job.reschedule(later.replace(tzinfo=None))


def test_a_job_in_review_can_be_run_again(app: App) -> None:
    @app.task
    def work(ctx: Context) -> str:
        if ctx.job.token == 1:
            raise Review("look at it")
        return "fine"

    job = work.enqueue()
    app.testing().drain()
    assert job.refresh().status is JobState.REVIEW_NEEDED
    assert job.rerun().status is JobState.PENDING
    app.testing().drain()
    assert job.result(timeout=10) == "fine"
    with pytest.raises(IllegalTransition):
        asyncio.run(job.arerun())


def test_a_job_and_its_attempts_tell_how_long_they_ran_and_which_went_wrong() -> None:
    app = App("memory://", clock=ManualClock())
    runs = []

    @app.task(retry=Fixed(max_attempts=3, wait=timedelta(seconds=1)))
    def wobble(ctx: Context) -> str:
        runs.append(1)
        cast(ManualClock, app.clock).advance(timedelta(seconds=len(runs)))
        if len(runs) == 1:
            raise ConnectionError("not yet")
        return "done"

    with app:
        job = wobble.enqueue()
        assert job.duration is None
        testing = app.testing()
        testing.drain()
        testing.advance(timedelta(seconds=1))
        testing.drain()
        assert job.refresh().duration == timedelta(seconds=2)
        assert [execution.duration for execution in job.executions()] == [
            timedelta(seconds=2),
            timedelta(seconds=1),
        ]
        (wrong,) = job.executions(failed=True)
        assert (wrong.attempt, wrong.state) == (1, ExecutionState.FAILED)
