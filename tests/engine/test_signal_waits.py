"""Waits of durable functions for signals and events, on every store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator
from tests.grounds import url_of

from tidemill import App, Context
from tidemill.client.access import acting
from tidemill.clock import ManualClock
from tidemill.domain.states import JobState
from tidemill.errors import BadArguments, BadSettings, IllegalTransition


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app with a manual clock on each kind of store."""
    # PostgreSQL dates new jobs by its own clock, so the manual one starts at the present time.
    clock = ManualClock(datetime.now(UTC))
    with App(url_of(request.param, tmp_path, request), migrate=True, clock=clock) as app:
        yield app


def waiter(app: App, **options: Any) -> Any:
    """Declare a task that waits for one signal."""

    @app.task(name="wait", **options)
    def wait(ctx: Context) -> Any:
        return ctx.wait_for("go", timeout="1h")

    return wait


def status(job: Any) -> JobState:
    return JobState(job.refresh().status)


def advance(app: App, span: timedelta) -> None:
    """Advance the manual clock of the app."""
    assert isinstance(app.clock, ManualClock)
    app.clock.advance(span)


def result(job: Any) -> Any:
    return job.refresh().result(timeout=0)


def test_a_job_waits_for_a_signal_and_continues(app: App) -> None:
    job = waiter(app).enqueue()
    runner = app.testing()
    runner.drain()
    assert status(job) is JobState.WAITING
    assert [wait.name for wait in app.store.waits([job.id], tenant="default")] == ["go"]
    app.signal(job, "go", {"n": 1})
    runner.drain()
    assert result(job) == {"n": 1}


def test_a_coroutine_waits_for_a_signal(app: App) -> None:
    @app.task
    async def wait(ctx: Context) -> Any:
        return await ctx.await_for("go")

    job = wait.enqueue()
    app.testing().drain()
    app.signal(job, "go", [1])
    app.testing().drain()
    assert result(job) == [1]


def test_s14_a_signal_before_the_wait_is_taken_at_once(app: App) -> None:
    job = waiter(app).enqueue()
    app.signal(job, "go", 7)
    app.testing().drain()
    assert result(job) == 7
    assert len(job.executions()) == 1


def test_s14_a_signal_between_the_look_and_the_suspension_wakes_the_job(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = waiter(app).enqueue()
    runner, store = app.testing(), app.store
    finish = store.finish

    def late(finishes: Any, **how: Any) -> Any:
        monkeypatch.undo()
        app.signal(job, "go", "late")  # the job is still running: this wakes nothing
        return finish(finishes, **how)

    monkeypatch.setattr(store, "finish", late)
    runner.drain()
    store.wake_receivers(now=app.clock.now())  # the look after the commit
    runner.drain()
    assert result(job) == "late"


def test_s14_a_signal_after_the_deadline_stays_for_the_next_wait(app: App) -> None:
    @app.task
    def wait(ctx: Context) -> Any:
        first = ctx.wait_for("go", timeout="1h")
        return [first, ctx.wait_for("go")]

    job = wait.enqueue()
    runner = app.testing()
    runner.drain()
    advance(app, timedelta(hours=2))
    app.signal(job, "go", "too late for the first")
    runner.drain()
    assert result(job) == [None, "too late for the first"]


def test_s14_a_signal_at_the_deadline_is_in_time(app: App) -> None:
    job = waiter(app).enqueue()
    runner = app.testing()
    runner.drain()
    advance(app, timedelta(hours=1))
    app.signal(job, "go", "just")
    runner.drain()
    assert result(job) == "just"


def test_s14_a_signal_with_the_same_key_is_taken_once(app: App) -> None:
    @app.task
    def wait(ctx: Context) -> Any:
        return [ctx.wait_for("go"), ctx.wait_for("go", timeout="1m")]

    job = wait.enqueue()
    runner = app.testing()
    runner.drain()
    assert app.signal(job, "go", 1, key="k")
    runner.drain()
    assert app.signal(job, "go", 2, key="k") is False
    runner.advance(timedelta(minutes=2))
    runner.drain()
    assert result(job) == [1, None]


def test_s14_a_signal_to_an_ended_job_is_refused(app: App) -> None:
    job = waiter(app).enqueue()
    app.signal(job, "go")
    app.testing().drain()
    with pytest.raises(IllegalTransition):
        app.signal(job, "go")


def test_s15_a_time_out_is_recorded_and_replayed(app: App) -> None:
    seen: list[Any] = []

    @app.task
    def wait(ctx: Context) -> Any:
        seen.append(ctx.wait_for("go", timeout="1h"))
        seen.append(ctx.wait_for("go", timeout="1h"))
        return "done"

    job = wait.enqueue()
    runner = app.testing()
    runner.drain()
    runner.advance(timedelta(hours=1, seconds=1))
    runner.drain()
    assert seen == [None]
    app.signal(job, "go", "second")
    runner.drain()
    assert result(job) == "done"
    assert seen == [None, None, "second"]


def test_a_payload_is_converted_to_a_type(app: App) -> None:
    class Decision(BaseModel):
        granted: bool

    @app.task
    def wait(ctx: Context) -> bool:
        decision = ctx.wait_for("go", type=Decision)
        assert decision is not None
        return decision.granted

    job = wait.enqueue()
    app.signal(job, "go", {"granted": True})
    app.testing().drain()
    assert result(job) is True


def test_a_wait_without_a_timeout_lasts_for_years(app: App) -> None:
    @app.task
    def wait(ctx: Context) -> Any:
        return ctx.wait_for("go")

    job = wait.enqueue()
    runner = app.testing()
    runner.drain()
    runner.advance(timedelta(days=400))
    runner.drain()
    assert status(job) is JobState.WAITING
    app.signal(job, "go", 1)
    runner.drain()
    assert result(job) == 1


def test_a_job_waits_for_an_event_that_matches(app: App) -> None:
    @app.task
    def wait(ctx: Context, order: int) -> Any:
        return ctx.wait_for_event("paid", match=order)

    mine, other = wait.enqueue(order=1), wait.enqueue(order=2)
    runner = app.testing()
    runner.drain()
    runner.advance("1m")
    app.emit("paid", {"sum": 3}, match=1)
    runner.drain()
    assert result(mine) == {"sum": 3}
    assert status(other) is JobState.WAITING


def test_an_event_since_the_creation_of_the_job_is_seen(app: App) -> None:
    @app.task
    async def wait(ctx: Context) -> Any:
        return [await ctx.await_event("paid"), await ctx.await_event("paid", timeout="1m")]

    app.emit("paid", "before")
    advance(app, timedelta(minutes=1))
    job = wait.enqueue()
    advance(app, timedelta(minutes=1))
    app.emit("paid", "between")
    runner = app.testing()
    runner.drain()
    runner.advance(timedelta(minutes=2))
    runner.drain()
    assert result(job) == ["between", None]


class Decision(BaseModel):
    """A person's answer."""

    granted: bool
    amount: int = Field(0, ge=0)

    @field_validator("amount")
    @classmethod
    def even(cls, amount: int) -> int:
        if amount % 2:
            raise ValueError("the amount must be even")
        return amount


def asking(app: App) -> Any:
    """Declare a task that asks a person."""

    @app.task(name="ask")
    def ask(ctx: Context) -> Any:
        decision = ctx.ask(Decision, to="finance", message="Pay it?", timeout="3d")
        return None if decision is None else [decision.granted, decision.amount]

    return ask


def test_a_question_resumes_the_job_with_a_typed_answer(app: App) -> None:
    job = asking(app).enqueue()
    app.testing().drain()
    (question,) = app.signals.questions()
    assert (question.job_id, question.title, question.to, question.message) == (
        job.id,
        "Decision",
        "finance",
        "Pay it?",
    )
    assert question.schema["properties"]["granted"] == {"title": "Granted", "type": "boolean"}
    with acting("key:ada"):
        app.signals.answer(job, {"granted": True, "amount": 4})
    app.testing().drain()
    assert result(job) == [True, 4]
    assert app.signals.questions() == []
    (entry,) = app.audit.list(action="job.answered")
    assert (entry.entry.who, entry.entry.subject) == ("key:ada", f"job:{job.id}")


def test_an_answer_that_does_not_fit_the_schema_is_refused(app: App) -> None:
    job = asking(app).enqueue()
    app.testing().drain()
    for wrong in (None, {}, {"granted": "yes"}, {"granted": True, "amount": -1}):
        with pytest.raises(BadArguments, match="does not fit"):
            app.signals.answer(job, wrong)
    assert len(app.signals.questions(job=job)) == 1


def test_an_answer_that_the_model_refuses_is_asked_for_again(app: App) -> None:
    job = asking(app).enqueue()
    app.testing().drain()
    app.signals.answer(job, {"granted": True, "amount": 3})
    app.testing().drain()
    (question,) = app.signals.questions(job=job)
    assert "must be even" in (question.problem or "")
    app.signals.answer(job, {"granted": False})
    app.testing().drain()
    assert result(job) == [False, 0]


def test_a_question_is_answered_once(app: App) -> None:
    job = asking(app).enqueue()
    app.testing().drain()
    app.signals.answer(job, {"granted": True})
    with pytest.raises(IllegalTransition):
        app.signals.answer(job, {"granted": False})
    app.testing().drain()
    assert result(job) == [True, 0]
    with pytest.raises(IllegalTransition, match="asks nothing"):
        app.signals.answer(job, {"granted": False})


def test_a_signal_cannot_take_the_key_of_an_answer(app: App) -> None:
    job = asking(app).enqueue()
    app.testing().drain()
    with pytest.raises(BadSettings, match="belong to answers"):
        app.signals.send(job, "other", key="answer/ask/Decision")
    app.signals.answer(job, {"granted": True})
    app.testing().drain()
    assert result(job) == [True, 0]


def test_a_question_without_an_answer_times_out(app: App) -> None:
    job = asking(app).enqueue()
    runner = app.testing()
    runner.drain()
    runner.advance(timedelta(days=3, seconds=1))
    runner.drain()
    assert result(job) is None


def test_a_question_needs_a_model(app: App) -> None:
    @app.task(max_retries=0)
    def ask(ctx: Context) -> Any:
        return ctx.ask(int)

    job = ask.enqueue()
    app.testing().drain()
    assert "pydantic model" in (job.refresh().reason or "")
