"""The demo app: jobs of every kind for both tenants, bounded in number and age."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from datetime import timedelta
from types import ModuleType

import pytest

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
    assert made == set(world.tasks) - {"count_visitors"}
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
    assert found == {"a-little-work", "one-of-each", "tidy", "visitors", "monday-letter"}
