"""Tests of jobs whose arguments do not fit the worker's code."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.client.schedules_kit import MIDNIGHT
from tests.engine.cluster_kit import eventually
from tests.engine.harness import STORES, Harness, Place, a_place, opened
from tests.grounds import url_of

from tidemill import App, ManualClock
from tidemill.client.jobs.why import explain
from tidemill.domain.cluster import Worker
from tidemill.domain.job import NewJob
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.runner.code_check import CodeCheck
from tidemill.ids import new_id

S, E = JobState, ExecutionState
FITS_ONLY_NEW_CODE = '{"number":7,"region":"eu"}'
REASON = (
    "its arguments do not fit this worker's version of the task: region: there is no such argument; waiting"
)


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness(place: Place, tmp_path: Path) -> Iterator[Harness]:
    with place(tmp_path) as url, opened(url) as harness:
        yield harness


@pytest.fixture
def small() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


@pytest.fixture(params=STORES)
def timed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app with the old code and a manual clock."""
    with App(url_of(request.param, tmp_path, request), clock=ManualClock(MIDNIGHT)) as app:
        app.task(name="collect")(old_collect)
        yield app


def old_collect(number: int) -> int:
    return number


async def old_collect_async(number: int) -> int:
    return number


def new_collect(number: int, region: str = "eu") -> str:
    return f"{number} {region}"


def put(harness: Harness, args: str = FITS_ONLY_NEW_CODE, count: int = 1) -> list[Any]:
    jobs = [NewJob(new_id(), "collect", args) for _ in range(count)]
    harness.line.real.enqueue(jobs)
    harness.line.real.notify(["ready:default"])
    return [job.id for job in jobs]


@pytest.mark.parametrize("code", [old_collect, old_collect_async])
def test_a_job_that_does_not_fit_this_code_waits_and_uses_no_attempt(
    harness: Harness, caplog: pytest.LogCaptureFixture, code: Any
) -> None:
    harness.app.task(name="collect")(code)
    ids = put(harness, count=3)
    with caplog.at_level(logging.WARNING, "tidemill.engine"), harness.worker():
        eventually(lambda: all(harness.state(id) is S.WAITING for id in ids))
        rows = [harness.row(id) for id in ids]
    assert [(row.attempt, row.error) for row in rows] == [(0, None)] * 3
    assert all((row.reason or "").startswith(REASON) for row in rows)
    assert all(row.run_at - row.created_at >= timedelta(seconds=5) for row in rows)
    (released,) = harness.line.real.executions([ids[0]], tenant="default")
    assert released.state is E.RELEASED
    warnings = [line for line in caplog.messages if "do not fit" in line]
    assert len(warnings) == 1
    assert "jobs of task collect" in warnings[0]


def test_a_new_worker_with_fitting_code_runs_it_at_once(harness: Harness) -> None:
    harness.app.task(name="collect")(old_collect)
    (id,) = put(harness)
    with harness.worker():
        eventually(lambda: harness.state(id) is S.WAITING)
    newer = harness.another_app()
    newer.task(name="collect")(new_collect)
    with newer.worker(patience=0.3, children=0):
        eventually(lambda: harness.state(id) is S.COMPLETED)
    row = harness.row(id)
    assert (row.result, row.attempt) == ('"7 eu"', 1)


def test_a_new_worker_leaves_other_waiting_jobs_and_misfits_unchanged(small: Harness) -> None:
    small.app.task(name="collect")(old_collect)
    (misfit,) = put(small)
    with small.worker():
        eventually(lambda: small.state(misfit) is S.WAITING)
    other = NewJob(new_id(), "collect", '{"number":1}', waiting="its parent")
    small.line.real.enqueue([other])
    assert CodeCheck(small.line.real, small.app.registry).wake_readable() == 0
    assert [small.state(id) for id in (misfit, other.id)] == [S.WAITING, S.WAITING]


def test_without_a_wait_a_misfit_fails_at_once(small: Harness) -> None:
    small.app.task(name="collect")(old_collect)
    (id,) = put(small)
    with small.worker(newer_code_wait=0):
        eventually(lambda: small.state(id) is S.FAILED)
    row = small.row(id)
    assert row.error is not None
    assert "region: there is no such argument" in row.error.message


def test_a_misfit_is_checked_at_growing_intervals_and_fails_after_an_hour(timed: App) -> None:
    id = new_id()
    timed.store.enqueue([NewJob(id, "collect", FITS_ONLY_NEW_CODE)], now=MIDNIGHT)
    testing = timed.testing()
    testing.drain()
    (row,) = timed.store.get([id], tenant="default")
    assert row.state is S.WAITING
    assert (row.reason or "").endswith("until 2026-01-01 01:00 UTC")
    testing.run_until_idle()
    (row,) = timed.store.get([id], tenant="default")
    executions = timed.store.executions([id], tenant="default")
    assert row.state is S.FAILED
    assert row.finished_at == MIDNIGHT + timedelta(hours=1)
    assert row.error is not None
    assert [each.state for each in executions] == [E.RELEASED] * (len(executions) - 1) + [E.FAILED]
    assert 60 <= len(executions) <= 66
    begun = [each.finished_at for each in executions if each.finished_at is not None]
    gaps = [(after - before).total_seconds() for before, after in itertools.pairwise(begun)]
    assert gaps[:3] == [5, 7.5, 11.25]
    assert gaps[7:-1] == [60] * (len(gaps) - 8)


def test_a_manual_retry_restarts_the_waiting_time_of_a_misfit(timed: App) -> None:
    id = new_id()
    timed.store.enqueue([NewJob(id, "collect", FITS_ONLY_NEW_CODE)], now=MIDNIGHT)
    testing = timed.testing()
    testing.run_until_idle()
    timed.jobs.get(id).retry()
    testing.drain()
    (row,) = timed.store.get([id], tenant="default")
    assert row.state is S.WAITING
    assert (row.reason or "").endswith("until 2026-01-01 02:00 UTC")


def test_why_names_the_argument_and_the_next_check(timed: App) -> None:
    id = new_id()
    timed.store.enqueue([NewJob(id, "collect", FITS_ONLY_NEW_CODE)], now=MIDNIGHT)
    timed.testing().drain()
    (row,) = timed.store.get([id], tenant="default")
    (found,) = explain(timed.store, row, now=MIDNIGHT)
    assert found.code == "newer_code"
    assert found.text == (
        "Its arguments do not fit this worker's version of the task: region: there is no such argument; waiting for a worker"
        " with newer code until 2026-01-01 01:00 UTC; the next worker looks at it in 5 seconds."
    )


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ('{"number":1,"x":2}', "x: there is no such argument"),
        ("{}", "number: required, but missing; give it a value"),
    ],
)
def test_missing_and_unknown_arguments_are_named(timed: App, args: str, problem: str) -> None:
    id = new_id()
    timed.store.enqueue([NewJob(id, "collect", args)], now=MIDNIGHT)
    timed.testing().drain()
    (row,) = timed.store.get([id], tenant="default")
    assert problem in (row.reason or "")


def test_a_task_with_extra_ignore_drops_only_unknown_arguments(small: Harness) -> None:
    small.app.task(name="collect", extra="ignore")(old_collect)
    (fits,) = put(small)
    (bad,) = put(small, '{"number":"many","region":"eu"}')
    with small.worker(newer_code_wait=0):
        eventually(lambda: {small.state(fits), small.state(bad)} == {S.COMPLETED, S.FAILED})
    assert small.row(fits).result == "7"


# Names -------------------------------------------------------------------------------------------------------------------


def test_a_worker_warns_of_waiting_jobs_whose_task_no_live_worker_has(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.app.task(name="collect")(old_collect)
    store = harness.line.real
    store.register(Worker(new_id(), "other", tasks=("elsewhere",)), lease=timedelta(minutes=5))
    store.enqueue([NewJob(new_id(), "send_mail") for _ in range(3)])
    store.enqueue([NewJob(new_id(), "resize", delay=timedelta(hours=1))])
    store.enqueue([NewJob(new_id(), "elsewhere"), NewJob(new_id(), "collect", '{"number":1}')])
    check = CodeCheck(store, harness.app.registry)
    with caplog.at_level(logging.WARNING, "tidemill.engine"):
        check()
        check()
    (line,) = [line for line in caplog.messages if "no living worker knows" in line]
    assert line.startswith("4 jobs wait for tasks that no living worker knows: send_mail (3), resize (1);")


def test_a_worker_warns_at_its_start(small: Harness, caplog: pytest.LogCaptureFixture) -> None:
    small.app.task(name="collect")(old_collect)
    small.line.real.enqueue([NewJob(new_id(), "send_mail")])
    with caplog.at_level(logging.WARNING, "tidemill.engine"), small.worker():
        eventually(lambda: "1 job waits for tasks that no living worker knows: send_mail (1)" in caplog.text)
