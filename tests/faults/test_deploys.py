"""Tests of two app versions on one store: schedules and newer schemas."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults import deploys
from tests.faults.deploys import Deployment, stored_schedules
from tests.faults.deploys_app import SCHEDULES, STORE, VERSION
from tests.faults.kit import ROOT, Harness, open_harness, until
from tests.stores.future_schema import migrate_to_the_future

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.states import JobState
from tidemill.stores.sql import migrations

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes through /proc"),
]

ENQUEUE = """
from tests.faults.deploys_app import app, collect
print(collect.enqueue(number=1).id)
app.close()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    url = (
        f"sqlite:///{tmp_path}/jobs.db"
        if request.param == "sqlite"
        else str(request.getfixturevalue("fresh_postgres_url"))
    )
    with open_harness(url, tmp_path) as harness:
        yield harness


def enqueue(harness: Harness) -> subprocess.CompletedProcess[str]:
    """Enqueue one job from a new process of the old version."""
    environment = {**os.environ, STORE: harness.url, VERSION: "1"}
    words = [sys.executable, "-c", ENQUEUE]
    return subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_restarted_old_runner_keeps_the_newer_schedules(harness: Harness) -> None:
    old = Deployment(harness, 1)
    old.worker.ready()
    until(lambda: stored_schedules(harness) == SCHEDULES[1], "the schedules are the old ones", 30)
    new = Deployment(harness, 2)
    new.worker.ready()
    until(lambda: stored_schedules(harness) == SCHEDULES[2], "the schedules are the new ones", 30)
    old.kill_runner()
    assert stored_schedules(harness) == SCHEDULES[2]
    assert old.worker.log.count("are not synchronized with this code") == 1
    assert old.worker.stop() == 0
    assert stored_schedules(harness) == SCHEDULES[2]
    (added,) = harness.store.schedules(tenant=ALL_TENANTS, keys=["added"])
    since = harness.store.now()

    def fired() -> bool:
        return any(
            fire.fire_at > since for fire in harness.store.fires(added.id, tenant=added.tenant, limit=1)
        )

    until(fired, "the new version's schedule fires", 30)


def test_a_reload_applies_the_schedules_of_its_code(harness: Harness) -> None:
    old = Deployment(harness, 1)
    old.worker.ready()
    new = Deployment(harness, 2)
    new.worker.ready()
    until(lambda: stored_schedules(harness) == SCHEDULES[2], "the schedules are the new ones", 30)
    # The old code is deployed again, after the newer one.
    old.reload()
    until(lambda: stored_schedules(harness) == SCHEDULES[1], "the schedules are the old ones", 30)


def test_old_code_runs_on_a_newer_schema_that_supports_it(harness: Harness) -> None:
    old = Deployment(harness, 1)
    old.worker.ready()
    migrate_to_the_future(harness.url)
    done = enqueue(harness)
    assert done.returncode == 0, done.stderr
    old.kill_runner()
    old.worker.stop()
    old.worker = old.start().ready()
    enqueue(harness)
    collected = JobFilter(ALL_TENANTS, tasks=frozenset({"collect"}), states=frozenset({JobState.COMPLETED}))
    until(lambda: sum(harness.store.count(collected).values()) == 2, "both jobs are done", 60)


def test_old_code_reports_a_schema_that_no_longer_supports_it(harness: Harness) -> None:
    dialect = "postgres" if harness.url.startswith("postgres") else "sqlite"
    migrate_to_the_future(harness.url, serves=len(migrations.load(dialect)) + 1)
    done = enqueue(harness)
    assert done.returncode != 0
    assert "SchemaTooNew" in done.stderr
    assert "pip install --upgrade tidemill" in done.stderr
    worker = Deployment(harness, 1).worker
    until(lambda: not worker.alive, "the worker exits", 60)
    assert "pip install --upgrade tidemill" in worker.log


def test_random_restarts_around_a_migration_lose_no_job(harness: Harness) -> None:
    assert deploys.run(harness, 3, 3, jobs=5).violations == []
