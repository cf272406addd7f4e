"""Handles: looking, waiting, and doing things to a job."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any, cast

import pytest

from tidemill import PermanentError, Review
from tidemill.app import App
from tidemill.client.handle import Job
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.context import Context
from tidemill.errors import BadFilter, IllegalTransition, JobCancelled, JobFailed, JobNotFound, WaitTimeout


def test_the_result_is_the_value_the_task_returned(app: App) -> None:
    @app.task
    def halve(number: int) -> float:
        return number / 2

    job = halve.enqueue(number=5)
    app.testing().drain()
    assert job.result(timeout=10) == 2.5
    assert job.value == 2.5
    assert job.progress == 1.0
    assert job.ended


def test_a_result_is_awaited_in_both_ways(app: App) -> None:
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


def test_a_failed_job_raises_what_went_wrong(app: App) -> None:
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


def test_a_wait_has_an_end(app: App) -> None:
    @app.task
    def never() -> None: ...

    job = never.enqueue()
    with pytest.raises(WaitTimeout, match="still pending"):
        job.result(timeout=0.05)
    with pytest.raises(WaitTimeout):
        asyncio.run(job.aresult(timeout=timedelta(milliseconds=50)))


def test_a_pending_job_is_cancelled_at_once(app: App) -> None:
    @app.task
    def never() -> None: ...

    job = never.enqueue().cancel("changed my mind")
    assert job.status is JobState.CANCELLED
    with pytest.raises(JobCancelled, match="changed my mind"):
        job.result(timeout=10)
    with pytest.raises(IllegalTransition, match="it is cancelled"):
        job.cancel()


def test_an_ended_job_is_retried_by_hand_and_deleted(app: App) -> None:
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
def test_a_person_decides_a_review(app: App, word: str, status: JobState) -> None:
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


def test_children_know_their_parent_and_share_its_correlation(app: App) -> None:
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


def test_progress_and_logs_are_seen_from_outside(app: App) -> None:
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
    assert seen
    assert seen[-1] == 1.0


def test_many_jobs_are_cancelled_retried_and_deleted_by_a_condition(app: App) -> None:
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


def test_a_callback_that_raises_keeps_nobody_else_from_hearing(
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
    assert "could not be told that it has moved" in caplog.text


def test_a_loop_that_was_closed_while_it_watched_keeps_nobody_from_hearing(
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
    loop.close()  # its watch was never ended
    app.testing().drain()
    assert job.result(timeout=30) == 1
    assert "could not be told" not in caplog.text
    asyncio.run(cast("AsyncGenerator[Any, None]", watching).aclose())


def test_a_subscription_to_a_job_that_has_ended_is_called_once_and_over(app: App) -> None:
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
def test_a_list_of_nothing_means_no_job_to_a_bulk_action(app: App, name: str) -> None:
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
def test_a_bulk_action_without_a_condition_is_refused(app: App, condition: dict[str, Any]) -> None:
    for act in (app.jobs.cancel, app.jobs.retry, app.jobs.delete):
        with pytest.raises(BadFilter):
            act(**condition)


def test_of_no_ids_no_job_is_found(app: App) -> None:
    @app.task
    def one() -> None: ...

    one.enqueue()
    assert app.jobs.list(ids=[]).items == []
    assert list(app.jobs.stream(ids=[])) == []
    assert app.jobs.count(ids=[]) == 0


def test_jobs_with_a_text_are_found_counted_and_acted_on(app: App) -> None:
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
    with pytest.raises(BadFilter):
        app.archive.search(text="ada")


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


def test_every_method_that_asks_the_store_has_an_awaited_twin() -> None:
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
