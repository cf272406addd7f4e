"""Tests of two app versions on one store: schedules and newer schemas."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from tests.faults import deploys
from tests.faults.deploys import Deployment, stored_schedules
from tests.faults.deploys_app import ROLLING_CALLS, SCHEDULES, STORE, VERSION
from tests.faults.kit import ROOT, Harness, open_harness, until
from tests.stores.future_schema import migrate_to_the_future

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import NewJob
from tidemill.domain.misfits import is_misfit
from tidemill.domain.states import JobState
from tidemill.ids import new_id
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


def enqueue_calls(harness: Harness, random: Random, count: int, versions: Sequence[int]) -> list[UUID]:
    """Enqueue jobs as producers of these versions do."""
    jobs = [NewJob(new_id(), *random.choice(ROLLING_CALLS[random.choice(versions)])) for _ in range(count)]
    harness.store.enqueue(jobs)
    harness.store.notify(["ready:default"])
    return [job.id for job in jobs]


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


def test_a_rolling_deploy_under_load_fails_no_job_and_charges_no_attempt(harness: Harness) -> None:
    old = Deployment(harness, 1, "1")
    old.worker.ready()
    random, accepted = Random(1), list[UUID]()
    stop = threading.Event()

    def produce() -> None:
        # Producers of both versions run during the deployment, and the old ones end with it.
        while not stop.is_set():
            accepted.extend(enqueue_calls(harness, random, 20, (1, 2)))
            stop.wait(0.1)

    producer = threading.Thread(target=produce)
    producer.start()
    new = Deployment(harness, 2, "2")
    new.worker.ready()
    stop.wait(2.0)
    assert old.worker.stop() == 0
    stop.set()
    producer.join()
    accepted.extend(enqueue_calls(harness, random, 20, (2,)))
    until(
        lambda: all(job.finished_at is not None for job in harness.jobs(accepted).values()),
        "every job has ended",
        120,
    )
    jobs = harness.jobs(accepted)
    assert Counter(job.state for job in jobs.values()) == {JobState.COMPLETED: len(accepted)}
    assert {job.attempt for job in jobs.values()} == {1}
    unread = [
        execution
        for execution in harness.store.executions(accepted, tenant=ALL_TENANTS)
        if is_misfit(execution.reason)
    ]
    assert unread  # the old worker has claimed jobs that only the new one can read
    print(f"rolling deploy: {len(jobs)} jobs completed at attempt 1, put back {len(unread)} times")


def test_random_restarts_around_a_migration_lose_no_job(harness: Harness) -> None:
    assert deploys.run(harness, 3, 3, jobs=5).violations == []
