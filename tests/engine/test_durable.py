"""Tests of durable functions: steps, sleeps, versions and crashes, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.grounds import url_of

from tidemill import App, Context, Exponential, Fixed, Job, ManualClock, PermanentError, Step, Unique
from tidemill.domain.filters import JobFilter
from tidemill.domain.job import JobRow
from tidemill.domain.states import JobState
from tidemill.errors import StepFailed, TooManySteps, UsageError

HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    url = url_of(request.param, tmp_path, request)
    with App(url, clock=ManualClock(), migrate=True) as app:
        yield app


@pytest.fixture
def memory() -> Iterator[App]:
    with App("memory://", clock=ManualClock()) as app:
        yield app


def row(app: App, job: Job[Any]) -> JobRow:
    (found,) = app.store.get([job.id], tenant="default")
    return found


def lines(app: App, job: Job[Any]) -> list[str]:
    return [entry.message for _, entry in app.store.logs(job.id, tenant="default")]


class Effects(list[str]):
    """The calls that the steps of a test made."""

    def do(self, what: str) -> str:
        self.append(what)
        return what.upper()

    async def ado(self, what: str) -> str:
        await asyncio.sleep(0)
        return self.do(what)


def declare_saga(app: App, effects: Effects) -> Any:
    @app.task(name="saga")
    def saga(ctx: Context) -> str:
        one = ctx.step("reserve", effects.do, "reserve")
        two = ctx.step("charge", effects.do, "charge")
        ctx.sleep("cool", HOUR)
        return one + two + ctx.step("ship", effects.do, "ship")

    return saga


def declare_async_saga(app: App, effects: Effects) -> Any:
    @app.task(name="saga")
    async def saga(ctx: Context) -> str:
        one = await ctx.astep("reserve", effects.ado, "reserve")
        two = await ctx.astep("charge", effects.ado, "charge")
        await ctx.asleep("cool", HOUR)
        return one + two + await ctx.astep("ship", effects.ado, "ship")

    return saga


DECLARATIONS = pytest.mark.parametrize("declare", [declare_saga, declare_async_saga], ids=["sync", "async"])
BOUNDARIES = [
    "in-step:reserve", "after-step:reserve", "in-step:charge", "after-step:charge", "in-step:cool", "after-step:cool",
    "in-step:ship", "after-step:ship", "finish",
]  # fmt: skip


@DECLARATIONS
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_s20_a_saga_killed_at_any_boundary_has_the_same_result(app: App, declare: Any, boundary: str) -> None:
    effects = Effects()
    job = declare(app, effects).enqueue()
    with app.testing() as testing:
        testing.kill_at(boundary)
        testing.run_until_idle()
        assert testing.kills == [boundary]
    assert job.result(timeout=1) == "RESERVECHARGESHIP"
    twice = boundary.removeprefix("in-step:") if boundary.startswith("in-step:") else None
    expected = [name for name in ("reserve", "charge", "ship") for _ in range(2 if name == twice else 1)]
    assert effects == expected, (
        "a step is repeated only if it was killed after its effect and before its record"
    )


@DECLARATIONS
def test_a_saga_killed_once_at_every_boundary_has_the_same_result(app: App, declare: Any) -> None:
    effects = Effects()
    job = declare(app, effects).enqueue()
    with app.testing() as testing:
        testing.resume_all()
        assert len(testing.kills) == len(BOUNDARIES)
    assert job.result(timeout=1) == "RESERVECHARGESHIP"
    assert sorted(effects) == sorted(["reserve", "charge", "ship"] * 2)


def test_a_sleeping_job_is_parked_and_wakes_at_its_time(app: App) -> None:
    job = declare_saga(app, Effects()).enqueue()
    with app.testing() as testing:
        testing.drain()
        parked = row(app, job)
        assert (parked.state, parked.attempt) == (JobState.WAITING, 0)
        assert parked.run_at == testing.clock.now() + HOUR
        testing.advance(HOUR - timedelta(seconds=1))
        assert testing.drain().processed == 0
        testing.advance(1)
        assert testing.drain().completed == 1
    states = [entry.state.value for entry in app.store.executions([job.id], tenant="default")]
    assert states == ["suspended", "succeeded"]


def test_s16_a_gather_of_five_steps_is_killed_at_each_boundary(app: App) -> None:
    effects = Effects()

    @app.task
    async def wide(ctx: Context) -> list[str]:
        return await asyncio.gather(*(ctx.astep(f"part-{n}", effects.ado, str(n)) for n in range(5)))

    job = wide.enqueue()
    with app.testing() as testing:
        testing.resume_all()
        assert len(testing.kills) >= 10
    assert job.result(timeout=1) == ["0", "1", "2", "3", "4"]


def test_s17_steps_may_be_moved_removed_and_renamed_between_suspend_and_resume(app: App) -> None:
    effects, new = Effects(), False

    @app.task
    def changing(ctx: Context) -> list[str]:
        if not new:
            values = [
                ctx.step("a", effects.do, "a"),
                ctx.step("b", effects.do, "b"),
                ctx.step("c", effects.do, "c"),
            ]
            values += [ctx.step("turn", effects.do, f"turn {n}") for n in range(2)]
        else:  # b is renamed, a and c are exchanged, and the loop is longer
            values = [
                ctx.step("c", effects.do, "c"),
                ctx.step("bee", effects.do, "b"),
                ctx.step("a", effects.do, "a"),
            ]
            values += [ctx.step("turn", effects.do, f"turn {n}") for n in range(3)]
        ctx.sleep("rest", HOUR)
        return values

    job = changing.enqueue()
    with app.testing() as testing:
        testing.drain()
        effects.clear()
        new = True
        testing.run_until_idle()
    assert job.result(timeout=1) == ["C", "B", "A", "TURN 0", "TURN 1", "TURN 2"]
    assert effects == ["b", "turn 2"], "only the renamed and the new step run"
    assert "recorded steps were not reached: b" in lines(app, job)


def test_s19_a_caught_failure_is_remembered_so_that_replay_takes_the_same_branch(app: App) -> None:
    declines = [True]
    effects = Effects()

    def charge() -> str:
        effects.append("charge")
        if declines.pop() if declines else False:
            raise CardDeclined("no funds", 7)
        return "charged"

    @app.task
    def pay(ctx: Context) -> str:
        try:
            return ctx.step("charge", charge)
        except CardDeclined as declined:
            return ctx.step("invoice", effects.do, f"invoice {declined.args}")

    job = pay.enqueue()
    with app.testing() as testing:
        testing.kill_at("after-step:invoice")
        testing.run_until_idle()
    assert job.result(timeout=1) == "INVOICE ('NO FUNDS', 7)"
    assert effects == ["charge", "invoice ('no funds', 7)"]


class CardDeclined(Exception):
    """An error of the shop."""


def test_a_failure_that_ended_the_attempt_is_tried_again(app: App) -> None:
    failures = [True]

    def charge() -> str:
        if failures:
            failures.pop()
            raise CardDeclined("no funds")
        return "charged"

    @app.task(retry=Fixed(3, wait=1))
    def pay(ctx: Context) -> str:
        return ctx.step("charge", charge)

    job = pay.enqueue()
    with app.testing() as testing:
        testing.run_until_idle()
    assert job.result(timeout=1) == "charged"


def test_an_error_of_a_lost_class_is_replayed_as_step_failed(memory: App) -> None:
    class Local(Exception):
        pass

    def fail() -> None:
        raise Local("gone")

    @memory.task
    def pay(ctx: Context) -> str:
        try:
            ctx.step("charge", fail)
        except (Local, StepFailed) as error:
            ctx.sleep("rest", HOUR)
            return f"{type(error).__name__}: {error}"
        return ""

    job = pay.enqueue()
    with memory.testing() as testing:
        testing.run_until_idle()
    assert job.result(timeout=1).startswith("StepFailed: step charge failed: ")


@pytest.mark.parametrize("wait", [0.5, 30.0], ids=["in-place", "suspended"])
def test_a_step_retries_in_place_or_suspends_the_job(app: App, wait: float) -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not yet")
        return len(tries)

    @app.task(retry=None)
    def poll(ctx: Context) -> int:
        return ctx.step(Step("poll", retry=Fixed(5, wait=wait)), flaky)

    job = poll.enqueue()
    with app.testing() as testing:
        testing.run_until_idle()
    assert job.result(timeout=1) == 3
    executions = app.store.executions([job.id], tenant="default")
    assert len(executions) == (1 if wait < 2 else 3)


def test_a_step_gives_up_after_its_tries_and_at_a_permanent_error(memory: App) -> None:
    tries = Effects()

    def fail(error: str) -> None:
        tries.append(error)
        raise PermanentError(error) if error == "permanent" else OSError(error)

    @memory.task(retry=None)
    def work(ctx: Context, error: str) -> None:
        ctx.step(Step("work", retry=Exponential(max_attempts=3)), fail, error)

    for error in ("broken", "permanent"):
        work.enqueue(error=error)
    with memory.testing() as testing:
        testing.run_until_idle()
    assert tries.count("broken") == 3
    assert tries.count("permanent") == 1


def test_s23_a_crash_loop_in_one_step_is_dead_lettered_and_spread_crashes_are_not(app: App) -> None:
    @app.task
    def loops(ctx: Context) -> None:
        ctx.step("good", lambda: 1)
        ctx.step("bad", lambda: 2)

    job = loops.enqueue()
    with app.testing() as testing:
        for _ in range(3):
            testing.kill_at("in-step:bad")
        testing.run_until_idle()
        assert row(app, job).state is JobState.DEAD_LETTERED

        @app.task
        def month(ctx: Context) -> str:
            for day in range(6):
                ctx.step(Step("day", key=day), lambda: 1)
                ctx.sleep(f"night {day}", timedelta(days=1))
            return "done"

        long = month.enqueue()
        for day in range(6):
            testing.kill_at(f"after-step:night {day}")
            testing.kill_at(f"in-step:day[{day}]")
        testing.run_until_idle("30d")
        assert len(testing.kills) == 3 + 12
    assert long.result(timeout=1) == "done"


def test_two_waits_at_once_are_refused_with_the_names_of_the_right_verbs(memory: App) -> None:
    @memory.task(retry=None)
    async def both(ctx: Context) -> None:
        await asyncio.gather(ctx.asleep("a", HOUR), ctx.asleep("b", HOUR))

    job = both.enqueue()
    with memory.testing() as testing:
        testing.drain()
    error = row(memory, job).error
    assert error is not None
    assert "ctx.first" in error.message
    assert "ctx.join" in error.message


def test_a_step_in_another_branch_ends_before_the_job_is_suspended(memory: App) -> None:
    effects = Effects()

    async def slow() -> None:
        await asyncio.sleep(0.05)
        effects.append("slow")

    @memory.task
    async def both(ctx: Context) -> None:
        await asyncio.gather(ctx.asleep("a", HOUR), ctx.astep("slow", slow))

    job = both.enqueue()
    with memory.testing() as testing:
        testing.drain()
        assert effects == ["slow"]
        assert row(memory, job).state is JobState.WAITING
        testing.run_until_idle()
    assert effects == ["slow"]
    assert row(memory, job).state is JobState.COMPLETED


def test_except_exception_does_not_catch_the_suspension_and_finally_blocks_can_tell(memory: App) -> None:
    seen: list[bool] = []

    @memory.task
    def careful(ctx: Context) -> str:
        try:
            ctx.sleep("rest", HOUR)
        except Exception:  # noqa: BLE001
            return "caught"
        finally:
            seen.append(ctx.suspending)
        return "slept"

    job = careful.enqueue()
    with memory.testing() as testing:
        testing.run_until_idle()
    assert job.result(timeout=1) == "slept"
    assert seen == [True, False]


def test_a_function_that_swallows_the_suspension_is_still_suspended(memory: App) -> None:
    @memory.task
    def rude(ctx: Context) -> str:
        try:
            ctx.sleep("rest", HOUR)
        except BaseException:  # noqa: BLE001
            return "swallowed"
        return "slept"

    job = rude.enqueue()
    with memory.testing() as testing:
        testing.run_until_idle()
    assert job.result(timeout=1) == "slept"


def test_a_repeated_name_gets_a_number_and_a_key_names_a_step_of_a_loop(memory: App) -> None:
    @memory.task
    def loop(ctx: Context) -> list[str]:
        for n in range(2):
            ctx.step("same", str, n)
            ctx.step(Step("keyed", key=n), str, n)
        return [view.name for view in ctx.steps]

    job = loop.enqueue()
    with memory.testing() as testing:
        testing.drain(raise_errors=True)
    assert sorted(job.result(timeout=1)) == ["keyed[0]", "keyed[1]", "same", "same#2"]


def test_two_steps_of_one_name_at_the_same_time_are_refused(memory: App) -> None:
    async def slow() -> None:
        await asyncio.sleep(0.01)

    @memory.task(retry=None)
    async def both(ctx: Context) -> None:
        await asyncio.gather(ctx.astep("x", slow), ctx.astep("x", slow))

    both.enqueue()
    with memory.testing() as testing, pytest.raises(UsageError, match="runs twice at the same time"):
        testing.drain(raise_errors=True)


def test_other_arguments_are_a_warning_or_a_review_if_the_task_is_strict(memory: App) -> None:
    amount = 1

    def work(ctx: Context) -> int:
        value = ctx.step("charge", int, amount)
        ctx.sleep("rest", HOUR)
        return value

    loose = memory.task(name="loose")(work).enqueue()
    strict = memory.task(name="strict", steps="strict")(work).enqueue()
    with memory.testing() as testing:
        testing.drain()
        amount = 2
        testing.run_until_idle()
    assert loose.result(timeout=1) == 1
    assert any(
        "charge was recorded with another function or other arguments" in line
        for line in lines(memory, loose)
    )
    assert row(memory, strict).state is JobState.REVIEW_NEEDED


def in_version(url: str, clock: ManualClock, work: Any, **options: Any) -> App:
    app = App(url, clock=clock, migrate=True)
    app.task(name="work", **options)(work)
    return app


def test_s18_an_older_worker_hands_a_job_of_newer_code_back_without_an_attempt(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/versions.db", ManualClock()

    def work(ctx: Context) -> int | None:
        ctx.step("a", int, 1)
        ctx.sleep("rest", HOUR)
        return ctx.version

    with in_version(url, clock, work, version=3) as app, app.testing() as testing:
        job = app.enqueue("work")
        testing.drain()
    with in_version(url, clock, work, version=2) as older, older.testing() as testing:
        testing.advance(HOUR)
        assert testing.drain().put_off == 1
        handed = row(older, job)
    assert (handed.state, handed.attempt) == (JobState.SCHEDULED, 0)
    assert handed.reason == "version 3 of the task has run this job, and this worker has 2"
    with in_version(url, clock, work, version=5, resumes=4) as newer, newer.testing() as testing:
        testing.advance(5)
        testing.drain()
        assert row(newer, job).state is JobState.REVIEW_NEEDED


def test_the_version_that_began_a_job_is_kept(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/versions.db", ManualClock()

    def work(ctx: Context) -> list[int | None]:
        before = ctx.version
        ctx.step("a", int, 1)
        ctx.sleep("rest", HOUR)
        return [before, ctx.version]

    with in_version(url, clock, work, version=1) as app, app.testing() as testing:
        job = app.enqueue("work")
        testing.drain()
    with in_version(url, clock, work, version=2) as newer, newer.testing() as testing:
        testing.advance(HOUR)
        testing.drain()
        assert row(newer, job).result == "[1,1]"


def test_a_step_key_is_the_same_at_every_try_and_differs_between_steps(memory: App) -> None:
    keys: list[str] = []

    @memory.task
    def work(ctx: Context) -> None:
        def note() -> None:
            keys.append(ctx.step_key)
            if len(keys) == 1:
                raise OSError

        ctx.step(Step("a", retry=3), note)
        ctx.step("b", note)

    job = work.enqueue()
    with memory.testing() as testing:
        testing.run_until_idle()
    assert keys == [f"{job.id}/a", f"{job.id}/a", f"{job.id}/b"]


def test_a_step_that_exceeds_its_timeout_raises_timeout_error(memory: App) -> None:
    import threading

    release = threading.Event()

    @memory.task(retry=None)
    def work(ctx: Context) -> str:
        try:
            ctx.step(Step("slow", timeout=0.01), release.wait, 10)
        except TimeoutError as error:
            return str(error)
        return "in time"

    job = work.enqueue()
    with memory.testing() as testing:
        testing.drain()
    release.set()
    assert job.result(timeout=1) == "step slow exceeded its timeout of 0.01 s"


def test_a_checkpoint_cannot_take_the_name_of_a_step(memory: App) -> None:
    @memory.task(retry=None)
    def work(ctx: Context) -> None:
        ctx.save_checkpoint("step/a", "1")

    work.enqueue()
    with memory.testing() as testing, pytest.raises(UsageError, match="belong to steps"):
        testing.drain(raise_errors=True)


def test_again_completes_the_job_and_continues_in_a_new_one_without_steps(app: App) -> None:
    seen: list[tuple[int, str, int]] = []

    @app.task(unique=Unique(by=("name",)))
    def forever(ctx: Context, name: str, turn: int = 0) -> int:
        seen.append((turn, ctx.correlation_id, len(ctx.steps)))
        ctx.step("turn", int, turn)
        if turn < 3:
            ctx.again(turn=turn + 1)
        return turn

    job = forever.enqueue(name="a")
    with app.testing() as testing:
        testing.drain(raise_errors=True)
    assert seen == [(turn, str(job.id), 0) for turn in range(4)]
    assert [found.state.value for found in app.store.jobs(JobFilter("default")).items] == ["completed"] * 4


def test_a_job_with_too_many_steps_must_continue_in_a_new_job(
    memory: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.domain.steps.MOST_STEPS", 3)

    @memory.task(retry=None)
    def many(ctx: Context) -> None:
        for n in range(9):
            ctx.step("turn", int, n)

    many.enqueue()
    with memory.testing() as testing, pytest.raises(TooManySteps, match=r"ctx\.again"):
        testing.drain(raise_errors=True)
