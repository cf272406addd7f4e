"""The demo app: jobs of every kind for both tenants, bounded in number and age."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from tidemill import App
from tidemill.demo import history
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.states import ENDED, JobState

EVERYBODY = {"tenant": ALL_TENANTS}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setenv("TIDEMILL_STORE", "memory://")
    sys.modules.pop("tidemill.demo.sample_app", None)
    found = importlib.import_module("tidemill.demo.sample_app")
    yield found
    found.app.close()
    del sys.modules["tidemill.demo.sample_app"]


def test_one_of_each_creates_every_kind_of_job(world: ModuleType) -> None:
    assert world.make_work(every_kind=True) == len(world.KINDS)
    made = {job.task for job in world.app.jobs.list(**EVERYBODY).items}
    assert made == set(world.tasks) - {"count_visitors", "export_orders"}
    assert {job.tenant for job in world.app.jobs.list(**EVERYBODY).items} <= set(world.TENANTS)
    for _ in range(50):
        world.make_work()
    assert {job.tenant for job in world.app.jobs.list(limit=500, **EVERYBODY).items} == set(world.TENANTS)


def test_no_job_is_added_while_too_many_wait(world: ModuleType) -> None:
    while world.make_work():
        pass
    waiting = world.app.jobs.count(status=[JobState.PENDING, JobState.SCHEDULED], **EVERYBODY)
    assert world.MOST_WAITING <= waiting < world.MOST_WAITING + len(world.KINDS)


def test_tidy_removes_only_ended_jobs(world: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    world.make_work(every_kind=True)
    before = world.app.jobs.count(**EVERYBODY)
    world.app.jobs.cancel(task=["remind"], **EVERYBODY)
    assert world.tidy() == 0  # ended jobs stay for a while
    monkeypatch.setattr(world, "_policies", (ArchivePolicy("now", ENDED, max_age=timedelta(0)),))
    assert world.tidy() == 1
    assert world.app.jobs.count(**EVERYBODY) == before - 1


def test_the_schedules_are_stored_when_a_worker_starts(world: ModuleType) -> None:
    world.app.reconcile()
    found = {schedule.key for schedule in world.app.schedules.list(tenant=ALL_TENANTS)}
    assert found == {
        "a-little-work", "one-of-each", "imports", "tidy", "visitors", "monday-letter",
    }  # fmt: skip


def test_the_demo_begins_with_a_day_of_jobs_and_a_paused_queue(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/demo.db"
    for _ in range(2):  # the second call finds jobs and adds none
        history.main(url)
        with App(url) as app:
            assert 300 < (total := app.jobs.count(**EVERYBODY)) < 2_000
            failed = app.jobs.count(status=["failed", "dead_lettered"], **EVERYBODY)
            assert 0 < failed < total * 0.04
            assert app.jobs.count(queue="exports", status="pending", **EVERYBODY) == 12
            assert [pause.name for pause in app.control.pauses()] == ["exports"]
            oldest = app.jobs.list(sort="oldest", limit=1, **EVERYBODY).items[0]
            assert timedelta(hours=23) < app.clock.now() - oldest.created_at < timedelta(hours=25)


def test_an_import_is_a_flow_of_jobs(world: ModuleType) -> None:
    world.start_import()
    runs = []
    for tenant in world.TENANTS:
        with world.app.tenant(tenant):
            runs += world.app.flows.list()
    (run,) = runs
    assert run.name.startswith("import ")
    tasks = {job.task for job in world.app.jobs.list(flow=run.id, **EVERYBODY).items}
    assert {"list_pages", "publish_import"} <= tasks
