"""Tests of compensations: they run if the job ends without success, the last one first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.grounds import url_of

from tidemill import RESULT, App, Context, ManualClock, PermanentError, Step, undo
from tidemill.domain.filters import JobFilter
from tidemill.domain.states import JobState
from tidemill.errors import UsageError


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    url = url_of(request.param, tmp_path, request)
    with App(url, clock=ManualClock(), migrate=True) as app:
        yield app


def declare(app: App, effects: list[str]) -> Any:
    @app.task
    def revert(what: str, receipt: str | None) -> None:
        effects.append(f"undo {what} {receipt}")

    def do(what: str) -> str:
        effects.append(what)
        return f"receipt of {what}"

    @app.task(name="saga")
    def saga(ctx: Context, fails: bool) -> str:
        for what in ("hotel", "flight", "car"):
            step = Step(what, compensate=undo(revert, what=what, receipt=RESULT))
            ctx.step(step, do, what)
        ctx.sleep("rest", timedelta(hours=1))
        if fails:
            raise PermanentError("no visa")
        return "booked"

    return saga


UNDONE = ["undo car receipt of car", "undo flight receipt of flight", "undo hotel receipt of hotel"]


def test_a_failed_saga_is_undone_in_reverse_order(app: App) -> None:
    effects: list[str] = []
    declare(app, effects).enqueue(fails=True)
    with app.testing() as testing:
        testing.run_until_idle()
    assert effects == ["hotel", "flight", "car", *UNDONE]


def test_a_saga_that_completes_undoes_nothing(app: App) -> None:
    effects: list[str] = []
    job = declare(app, effects).enqueue(fails=False)
    with app.testing() as testing:
        testing.run_until_idle()
    assert job.result(timeout=1) == "booked"
    assert effects == ["hotel", "flight", "car"]
    left = app.store.jobs(JobFilter("default", tasks=frozenset({"revert"}))).items
    assert [row.state for row in left] == [JobState.CANCELLED] * 3
    reasons = {row.reason for row in left}
    assert reasons == {
        f"skipped: compensates step {what} if job {job.id} does not succeed, and it completed"
        for what in ("hotel", "flight", "car")
    }


def test_s20_a_saga_that_is_cancelled_while_it_sleeps_is_undone(app: App) -> None:
    effects: list[str] = []
    job = declare(app, effects).enqueue(fails=False)
    with app.testing() as testing:
        testing.drain()
        job.cancel("changed their mind")
        testing.run_until_idle()
    assert effects == ["hotel", "flight", "car", *UNDONE]


def declare_async(app: App, effects: list[str]) -> Any:
    @app.task
    async def revert(what: str, receipt: str | None) -> None:
        effects.append(f"undo {what} {receipt}")

    async def do(what: str) -> str:
        effects.append(what)
        return f"receipt of {what}"

    @app.task(name="saga")
    async def saga(ctx: Context, fails: bool) -> str:
        for what in ("hotel", "flight", "car"):
            step = Step(what, compensate=undo(revert, what=what, receipt=RESULT))
            await ctx.astep(step, do, what)
        await ctx.asleep("rest", timedelta(hours=1))
        if fails:
            raise PermanentError("no visa")
        return "booked"

    return saga


BOUNDARIES = [
    *(f"{kind}-step:{what}" for what in ("hotel", "flight", "car", "rest") for kind in ("in", "after")),
    "finish",
]


@pytest.mark.parametrize("kind", [declare, declare_async], ids=["sync", "async"])
@pytest.mark.parametrize("fails", [True, False], ids=["fails", "completes"])
def test_s20_a_saga_killed_at_any_boundary_has_the_effects_and_compensations_of_the_table(
    app: App, kind: Any, fails: bool
) -> None:
    """A step runs again only if it was killed before its record. Compensations run once, if and only if the saga failed."""
    effects: list[str] = []
    saga = kind(app, effects)
    for boundary in BOUNDARIES:
        effects.clear()
        saga.enqueue(fails=fails)
        with app.testing() as testing:
            testing.kill_at(boundary)
            testing.run_until_idle()
            assert testing.kills == [boundary]
        again = boundary.removeprefix("in-step:")
        steps = [what for what in ("hotel", "flight", "car") for _ in range(2 if what == again else 1)]
        assert effects == [*steps, *(UNDONE if fails else [])], boundary


@pytest.mark.parametrize("boundary", ["in-step:undo", "after-step:undo", "finish"])
def test_s20_a_compensation_that_is_killed_runs_again_before_the_next_one(app: App, boundary: str) -> None:
    effects: list[str] = []

    @app.task
    def revert(ctx: Context, what: str) -> None:
        ctx.step("undo", effects.append, what)

    @app.task(name="saga")
    def saga(ctx: Context) -> None:
        for what in ("hotel", "flight"):
            ctx.step(Step(what, compensate=undo(revert, what=what)), str)
        raise PermanentError("no visa")

    saga.enqueue()
    with app.testing() as testing:
        testing.drain(limit=1)
        testing.kill_at(boundary)
        testing.run_until_idle()
        assert testing.kills == [boundary]
    assert effects == (["flight"] if boundary == "in-step:undo" else []) + ["flight", "hotel"]


@pytest.mark.parametrize("what", ["hotel", "flight", "car"])
@pytest.mark.parametrize("kind", ["in-step", "after-step"])
def test_s20_a_saga_killed_at_a_step_is_undone_once(app: App, what: str, kind: str) -> None:
    effects: list[str] = []
    declare(app, effects).enqueue(fails=True)
    with app.testing() as testing:
        testing.kill_at(f"{kind}:{what}")
        testing.run_until_idle()
        assert len(testing.kills) == 1
    assert [line for line in effects if line.startswith("undo")] == UNDONE


def test_a_step_that_may_not_have_happened_is_undone_without_a_result(app: App) -> None:
    effects: list[str] = []

    @app.task
    def revert(receipt: str | None) -> None:
        effects.append(f"undo {receipt}")

    def fail() -> str:
        raise PermanentError("unknown")

    @app.task
    def saga(ctx: Context) -> None:
        ctx.step(Step("book", compensate=undo(revert, receipt=RESULT)), fail)

    saga.enqueue()
    with app.testing() as testing:
        testing.run_until_idle()
    assert effects == ["undo None"]


def test_a_compensation_needs_a_task() -> None:
    with pytest.raises(UsageError, match="is not a task"):
        undo(print)  # type: ignore[arg-type]
