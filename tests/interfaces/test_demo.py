"""The demo app: jobs of every kind for both tenants, bounded in number and age."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from tidemill import App, ManualClock
from tidemill.client.stats.snapshot import Snapshot, raised
from tidemill.demo import history, shop
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


def test_the_demo_begins_with_a_day_of_jobs_a_paused_queue_and_a_backlog(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/demo.db?synchronous=normal"
    for _ in range(2):  # the second call finds jobs and adds none
        history.main(url)
        with App(url) as app:
            assert 3_000 < app.jobs.count(**EVERYBODY) < 6_000
            assert app.jobs.count(queue="exports", status="pending", **EVERYBODY) == 12
            assert app.jobs.count(task="transcode", status="pending", **EVERYBODY) == history.FILMS
            assert [pause.name for pause in app.control.pauses()] == ["exports"]
            oldest = app.jobs.list(sort="oldest", limit=1, **EVERYBODY).items[0]
            assert timedelta(hours=23) < app.clock.now() - oldest.created_at < timedelta(hours=25)
            for window in ("1h", "24h"):
                minutes = app.stats.throughput(window, **EVERYBODY)
                failed, ended = sum(row.failed for row in minutes), sum(row.total for row in minutes)
                assert 0.01 < failed / ended < 0.035, window
            # No worker runs in this test; everything else is well.
            assert {alert.code for alert in app.stats.alerts()} == {"no_workers"}
            later = app.clock.now() + timedelta(hours=1)
            alerts = raised(Snapshot(app.store, ALL_TENANTS, later), None, timedelta(hours=1))
            too_old = {alert.subject for alert in alerts if alert.code == "queue_age"}
            waiting = {job.queue for job in app.jobs.list(status="pending", tenant=ALL_TENANTS).items}
            assert "exports" in waiting
            assert too_old == waiting - {"exports"}, "only a paused queue waits without an alert"


def test_an_error_of_the_day_regressed_at_the_deploy(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/demo.db?synchronous=normal"
    history.main(url)
    with App(url) as app:
        latest, former = app.errors.deploys()
        assert (latest.release, former.release) == (shop.RELEASE, shop.FORMER_RELEASE)
        groups = {group.place: group for group in app.errors.list("24h", tenant=ALL_TENANTS)}
        assert set(groups) == {
            "demo/shop.py in book_invoice", "demo/shop.py in charge", "demo/shop.py in send_order",
        }  # fmt: skip
        back = groups["demo/shop.py in book_invoice"]
        assert back.regressed_since_deploy
        assert back.marked_by == "ada@example.com"
        assert not groups["demo/shop.py in charge"].regressed_since_deploy


def test_the_tasks_fail_where_those_of_the_day_did(world: ModuleType) -> None:
    """So that their errors join the groups of the day, and the release of the app is that of the last deploy."""
    # The clock stands still: on a busy machine the schedules would enqueue jobs faster than one thread runs them.
    with world.app.override(store="memory://", clock=ManualClock()), world.app.testing() as testing:
        world.tasks["import_invoice"].enqueue(number=20)
        world.tasks["charge_card"].enqueue(order=1, card="expired")
        testing.drain()
        assert {group.place for group in world.app.errors.list("24h", tenant=ALL_TENANTS)} == {
            "demo/shop.py in book_invoice", "demo/shop.py in charge",
        }  # fmt: skip
        world.app.reconcile()
        assert [deploy.release for deploy in world.app.errors.deploys()] == [shop.RELEASE]


def test_films_wait_behind_a_full_limit_without_growing_in_number(world: ModuleType) -> None:
    waiting = []
    for _ in range(20):
        world.make_work()
        waiting.append(world.app.jobs.count(task="transcode", status="pending", **EVERYBODY))
    assert waiting[-1] == max(waiting) == world.BACKLOG


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
