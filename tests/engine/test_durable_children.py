"""Tests of durable functions that wait for other jobs: map, call, join and first."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.grounds import url_of

from tidemill import App, Context, Job, ManualClock, NoRetry, PermanentError
from tidemill.domain.filters import JobFilter
from tidemill.domain.job import JobRow
from tidemill.domain.states import JobState
from tidemill.errors import JobFailed

STORES = ["memory", "sqlite", "postgres"]


@pytest.fixture(params=STORES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    url = url_of(request.param, tmp_path, request)
    with App(url, clock=ManualClock(), migrate=True) as app:
        yield app


def row(app: App, job: Job[Any]) -> JobRow:
    (found,) = app.store.get([job.id], tenant="default")
    return found


def declare_double(app: App) -> Any:
    @app.task
    def double(n: int) -> int:
        if n < 0:
            raise PermanentError(n)
        return 2 * n

    return double


@pytest.mark.parametrize("count", [0, 1, 3, 150])
def test_a_map_returns_the_results_in_order(app: App, count: int) -> None:
    double = declare_double(app)

    @app.task
    def parent(ctx: Context) -> list[int]:
        return ctx.map("double", double, [{"n": n} for n in range(count)])

    @app.task
    async def coroutine(ctx: Context) -> list[int]:
        return await ctx.amap("double", double, [{"n": n} for n in range(count)])

    jobs = [parent.enqueue(), coroutine.enqueue()]
    with app.testing() as testing:
        testing.run_until_idle(raise_errors=True)
    assert [job.result(timeout=1) for job in jobs] == [[2 * n for n in range(count)]] * 2
    made = app.jobs.count(task="double")
    assert made == 2 * count


def test_children_exist_all_or_none_once_wherever_the_parent_is_killed(app: App) -> None:
    double = declare_double(app)

    @app.task
    def parent(ctx: Context) -> list[int]:
        one = ctx.call("one", double, n=5)
        return [one, *ctx.map("double", double, [{"n": n} for n in range(3)])]

    job = parent.enqueue()
    with app.testing() as testing:
        testing.resume_all()
        assert testing.kills
    assert job.result(timeout=1) == [10, 0, 2, 4]
    assert app.jobs.count(task="double") == 4


def test_a_failed_child_is_raised_or_returned(app: App) -> None:
    double = declare_double(app)

    @app.task(retry=None)
    def parent(ctx: Context, failures: Any) -> list[str]:
        calls = [{"n": 1}, {"n": -1}]
        try:
            return [str(value) for value in ctx.map("double", double, calls, failures=failures)]
        except JobFailed as error:
            return ["raised", str(error)]

    raised, returned = parent.enqueue(failures="raise"), parent.enqueue(failures="return")
    with app.testing() as testing:
        testing.run_until_idle()
    assert raised.result(timeout=1)[0] == "raised"
    assert "PermanentError: -1" in raised.result(timeout=1)[1]
    assert returned.result(timeout=1)[0] == "2"
    assert "PermanentError: -1" in returned.result(timeout=1)[1]


def test_a_job_joins_jobs_that_others_enqueued(app: App) -> None:
    double = declare_double(app)

    @app.task
    def parent(ctx: Context) -> list[Any]:
        ids = ctx.step("start", lambda: [str(double.enqueue(n=n).id) for n in range(3)])
        from uuid import UUID

        jobs = [UUID(id) for id in ids]
        return [ctx.join(jobs[0]), ctx.join(jobs)]

    job = parent.enqueue()
    with app.testing() as testing:
        testing.run_until_idle(raise_errors=True)
    assert job.result(timeout=1) == [0, [0, 2, 4]]


def test_the_first_of_a_job_and_a_duration_wins_and_stays_the_winner(app: App) -> None:
    @app.task
    def slow(ctx: Context, delay: float) -> str:
        ctx.sleep("delay", delay)
        return "done"

    @app.task
    def parent(ctx: Context, delay: float) -> list[Any]:
        from uuid import UUID

        id = ctx.step("start", lambda: str(slow.enqueue(delay=delay).id))
        which, value = ctx.first("answer", job=UUID(id), late=timedelta(minutes=10))
        ctx.sleep("rest", timedelta(hours=2))
        return [which, value]

    quick, late = parent.enqueue(delay=60), parent.enqueue(delay=3600)
    with app.testing() as testing:
        testing.run_until_idle(raise_errors=True)
    assert quick.result(timeout=1) == ["job", "done"]
    assert late.result(timeout=1) == ["late", None]


def test_a_waiting_parent_holds_no_worker(app: App) -> None:
    double = declare_double(app)

    @app.task
    def parent(ctx: Context) -> int:
        value: int = ctx.call("one", double.using(delay=3600), n=1)
        return value

    job = parent.enqueue()
    with app.testing() as testing:
        testing.drain()
        assert row(app, job).state is JobState.WAITING
        testing.run_until_idle()
    assert job.result(timeout=1) == 2


def declare_stopping(app: App, double: Any) -> Any:
    @app.task
    def stopping(ctx: Context, numbers: list[int]) -> list[Any]:
        try:
            values = ctx.map("double", double, [{"n": n} for n in numbers], failures="stop")
        except JobFailed as error:
            values = ["stopped", str(error)]
        ctx.sleep("rest", timedelta(hours=1))
        return values

    return stopping


@pytest.mark.parametrize("count", [0, 1, 3, 150])
def test_a_map_that_stops_at_a_failure_ends_if_nothing_fails(app: App, count: int) -> None:
    job = declare_stopping(app, declare_double(app)).enqueue(numbers=list(range(count)))
    with app.testing() as testing:
        testing.run_until_idle(raise_errors=True)
    assert job.result(timeout=1) == [2 * n for n in range(count)]


def test_a_map_stops_at_the_first_failure_and_cancels_the_rest(app: App) -> None:
    @app.task
    def late(ctx: Context, n: int) -> int:
        if n >= 0:
            ctx.sleep("late", timedelta(minutes=30))
        raise PermanentError(n)

    job = declare_stopping(app, late).enqueue(numbers=[1, -1, 2])
    with app.testing() as testing:
        testing.run_until_idle()
    what, error = job.result(timeout=1)
    assert what == "stopped"
    assert "PermanentError: -1" in error, "the failure stays the same after the others are cancelled"
    rows = app.store.jobs(JobFilter("default", tasks=frozenset({late.name}))).items
    assert sorted(found.state.value for found in rows) == ["cancelled", "cancelled", "failed"]
    assert any("of double failed" in (found.reason or "") for found in rows)


@pytest.mark.parametrize("numbers", [[1, 2, 3], [1, -1, 2]], ids=["no failure", "a failure"])
def test_a_map_that_stops_is_the_same_wherever_its_parent_is_killed(app: App, numbers: list[int]) -> None:
    job = declare_stopping(app, declare_double(app)).enqueue(numbers=numbers)
    with app.testing() as testing:
        testing.resume_all()
        assert testing.kills
    result = job.result(timeout=1)
    assert result == [2, 4, 6] if min(numbers) > 0 else result[0] == "stopped"
    assert app.jobs.count(task="double") == len(numbers)


@pytest.mark.parametrize("store", STORES)
def test_a_map_that_stops_wakes_its_parent_in_a_real_worker(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with App(url_of(store, tmp_path, request), migrate=True) as app:
        double = declare_double(app)

        @app.task(retry=None)
        def parent(ctx: Context, numbers: list[int]) -> list[Any]:
            return ctx.map("double", double, [{"n": n} for n in numbers], failures="stop")

        good, bad = parent.enqueue(numbers=[1, 2, 3]), parent.enqueue(numbers=[1, -1])
        with app.worker(threads=2):
            assert good.result(timeout=30) == [2, 4, 6]
            with pytest.raises(JobFailed, match="PermanentError: -1"):
                bad.result(timeout=30)


def test_a_wait_counts_only_what_it_waits_for_itself(app: App) -> None:
    @app.task
    def slow(ctx: Context, minutes: int) -> int:
        ctx.sleep("delay", timedelta(minutes=minutes))
        return minutes

    @app.task
    def parent(ctx: Context) -> list[Any]:
        one = ctx.call("one", slow, minutes=5)
        from uuid import UUID

        late = UUID(ctx.step("start", lambda: str(slow.enqueue(minutes=60).id)))
        which, _ = ctx.first("either", job=late, timer=timedelta(minutes=5))
        return [one, which, ctx.call("two", slow, minutes=120)]

    job = parent.enqueue()
    with app.testing() as testing:
        for minutes in (0, 6, 6, 70):
            testing.advance(timedelta(minutes=minutes))
            testing.drain(raise_errors=True)
            assert row(app, job).state is JobState.WAITING
            store: Any = app.store
            assert store.recount_joins().repaired == frozenset()
        states = [entry.state.value for entry in app.store.executions([job.id], tenant="default")]
        assert states == ["suspended"] * 3, "the end of the job that came too late does not wake it"
        testing.run_until_idle()
    assert job.result(timeout=1) == [5, "timer", 120]


def test_the_jobs_of_a_map_stay_as_long_as_the_job_that_waits_for_them(app: App) -> None:
    double = declare_double(app)

    @app.task
    def parent(ctx: Context) -> list[int]:
        values = ctx.map("double", double, [{"n": n} for n in range(3)])
        ctx.sleep("rest", timedelta(days=90))
        return values

    job = parent.enqueue()
    children = JobFilter("default", tasks=frozenset({double.name}))
    with app.testing() as testing:
        testing.drain()
        ids = [found.id for found in app.store.jobs(children).items]
        assert len(ids) == 3
        assert not app.store.delete(ids, tenant="default")
        testing.run_until_idle("100d")
        assert job.result(timeout=1) == [0, 2, 4]
        assert app.store.delete(ids, tenant="default") == frozenset(ids)


@pytest.mark.parametrize("store", STORES)
def test_the_first_of_a_delayed_job_and_a_duration_is_the_job_in_a_real_worker(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A job that a client enqueues is due by the clock of the database, so a manual clock cannot show this on PostgreSQL."""
    with App(url_of(store, tmp_path, request), migrate=True) as app:
        double = declare_double(app)

        @app.task
        def parent(ctx: Context) -> list[Any]:
            from uuid import UUID

            id = ctx.step("start", lambda: str(double.using(delay=1.5).enqueue(n=1).id))
            return list(ctx.first("answer", job=UUID(id), late=timedelta(minutes=1)))

        job = parent.enqueue()
        with app.worker(threads=1):
            assert job.result(timeout=40) == ["job", 2]


@pytest.mark.parametrize("failures", ["raise", "stop"])
def test_the_jobs_of_a_map_are_cancelled_with_the_job_that_waits_for_them(app: App, failures: Any) -> None:
    double = declare_double(app)

    @app.task
    def parent(ctx: Context) -> list[int]:
        calls = [{"n": n} for n in range(3)]
        return ctx.map("double", double.using(queue="later", delay="1h"), calls, failures=failures)

    job = parent.enqueue()
    with app.testing() as testing:
        testing.drain()
        job.cancel("not wanted")
        testing.drain()
        children = app.jobs.list(task="double").items
        assert [child.status for child in children] == [JobState.CANCELLED] * 3
        assert {child.row.reason for child in children} == {
            f"job {job.id} was cancelled, which waited for it"
        }


def test_the_jobs_of_a_map_run_on_with_on_cancel_leave(app: App) -> None:
    double = declare_double(app)

    @app.task
    def parent(ctx: Context) -> list[int]:
        return ctx.map("double", double.using(delay="1h"), [{"n": 1}, {"n": 2}], on_cancel="leave")

    job = parent.enqueue()
    with app.testing() as testing:
        testing.drain()
        job.cancel("not wanted")
        testing.drain()
        assert app.jobs.count(task="double", status="scheduled") == 2
        testing.advance("2h")
        testing.drain()
        assert app.jobs.count(task="double", status="completed") == 2
    assert job.refresh().status is JobState.CANCELLED


def test_the_jobs_of_a_map_run_on_if_the_job_is_retried_in_time(app: App) -> None:
    double = declare_double(app)

    @app.task
    def parent(ctx: Context) -> list[int]:
        return ctx.map("double", double.using(delay="1h"), [{"n": 1}])

    job = parent.enqueue()
    with app.testing() as testing:
        testing.drain()
        job.cancel("by mistake")
        job.retry()
        testing.drain()
        testing.advance("2h")
        testing.run_until_idle()
    assert job.result(timeout=1) == [2]


def test_another_word_for_on_cancel_is_refused(app: App) -> None:
    double = declare_double(app)

    @app.task(retry=NoRetry())
    def parent(ctx: Context) -> list[int]:
        return ctx.map("double", double, [], on_cancel="keep")  # type: ignore[arg-type]

    job = parent.enqueue()
    app.testing().drain()
    assert "choose cancel or leave" in str(row(app, job).error)
