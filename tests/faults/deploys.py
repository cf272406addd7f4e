"""Two versions of an app on one store, restarted at random around a migration.

``python -m tests.faults.deploys --store postgres --cycles 40``. Each cycle kills, stops or reloads one worker while both
versions enqueue jobs that the other version cannot read. No job is lost or fails, and the newer version's schedules stay.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from random import Random
from uuid import UUID

from tests.faults.checks import Verdict
from tests.faults.command import main
from tests.faults.deploys_app import CALLS, RELEASE, SCHEDULES, STORE, VERSION
from tests.faults.kit import Harness, Worker, clock, pause, until
from tests.stores.future_schema import migrate_to_the_future

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NewJob
from tidemill.domain.misfits import is_misfit
from tidemill.domain.states import JobState
from tidemill.errors import StoreError
from tidemill.ids import new_id
from tidemill.stores.open import open_store

APP = "tests.faults.deploys_app:app"
_OPTIONS = ("--processes", "1", "--concurrency", "10", "--threads", "4", "--children", "0", "--grace", "2")
# Seconds between two reloads while the last jobs are pending.
_RELOAD = 10.0
# Seconds. A job that met the wrong worker often is tried once a minute.
_DRAIN = 420.0


class Deployment:
    """The worker of one version."""

    def __init__(self, harness: Harness, version: int, release: str | None = None) -> None:
        self.harness, self.version, self.release = harness, version, release
        self.worker = self.start()

    def start(self) -> Worker:
        """Start the worker."""
        words = [sys.executable, "-m", "tidemill", "worker", APP, *_OPTIONS]
        environment = {**os.environ, STORE: self.harness.url, VERSION: str(self.version)}
        if self.release is not None:
            environment[RELEASE] = self.release
        place = self.harness.folder / f"worker-{len(self.harness.workers)}"
        worker = Worker(words, place, environment)
        self.harness.workers.append(worker)
        return worker

    def kill_runner(self) -> None:
        """Kill the runner with SIGKILL and wait for the next one."""
        readies = self.worker.readies()
        runners = self.worker.runners()
        if runners and self.worker.kill_runner(runners[0]):
            self.worker.ready(readies + 1)

    def restart(self, random: Random) -> str:
        """Restart the worker in a random way; return which one."""
        how = random.choice(("kill runner", "kill supervisor", "stop", "reload"))
        match how:
            case "kill runner":
                self.kill_runner()
            case "kill supervisor":
                self.worker.kill()
                self.worker = self.start().ready()
            case "stop":
                self.worker.stop()
                self.worker = self.start().ready()
            case _:
                self.reload()
        return how

    def reload(self) -> None:
        """Send SIGHUP and wait for the runner with the new code."""
        readies = self.worker.readies()
        self.worker.process.send_signal(signal.SIGHUP)
        self.worker.ready(readies + 1)


def stored_schedules(harness: Harness) -> dict[str, int]:
    """Return the seconds between two fires of each enabled schedule, by key."""
    intervals: dict[str, int] = {}
    for row in harness.store.schedules(tenant=ALL_TENANTS):
        if row.enabled:
            intervals[row.key] = int(float(str(row.trigger["seconds"])))
    return intervals


def enqueue(harness: Harness, random: Random, count: int) -> list[UUID]:
    """Enqueue jobs of both versions through a newly opened store, as a new process does."""
    store = open_store(harness.url)
    try:
        jobs = [NewJob(new_id(), *random.choice(CALLS[random.choice((1, 2))])) for _ in range(count)]
        store.enqueue(jobs)
        store.notify(["ready:default"])
        return [job.id for job in jobs]
    finally:
        store.close()


def _has_warned(harness: Harness) -> bool:
    return any("not synchronized with this code" in worker.log for worker in harness.workers)


def run(harness: Harness, cycles: int, seed: int, jobs: int = 10) -> Verdict:
    """Run both versions, restart one in each cycle, and migrate half-way; enqueue ``jobs`` jobs per cycle."""
    random, verdict = Random(seed), Verdict()
    old = Deployment(harness, 1, "1")
    old.worker.ready()
    until(lambda: stored_schedules(harness) == SCHEDULES[1], "the schedules are the old ones", 60)
    new = Deployment(harness, 2, "2")
    new.worker.ready()
    until(lambda: stored_schedules(harness) == SCHEDULES[2], "the schedules are the new ones", 60)
    accepted: list[UUID] = []
    restarts: Counter[str] = Counter()
    reverted = 0
    for turn in range(cycles):
        if turn == cycles // 2:
            migrate_to_the_future(harness.url)
        accepted += enqueue(harness, random, jobs)
        deployment = random.choice((old, new))
        restarts[f"{deployment.restart(random)} v{deployment.version}"] += 1
        current = stored_schedules(harness)
        reverted += current != SCHEDULES[2]
        verdict.expect(current == SCHEDULES[2], "the newer schedules stay", (turn, current))
    accepted += enqueue(harness, random, jobs)
    began = clock.monotonic()
    _wait_for_all(harness, accepted, (old, new))
    drained = clock.monotonic() - began
    if any(restart.endswith("v1") for restart in restarts):
        # The last restart may have been the old worker's, and the new one may have run all the jobs.
        until(lambda: _has_warned(harness), "an old worker warns that it did not change the schedules", 60)
    old.worker.stop()
    _fires_go_on(harness, verdict)
    _judge(harness, accepted, verdict)
    verdict.expect(new.worker.stop() == 0, "the new worker stops cleanly", new.worker.pid)
    verdict.facts |= {
        "restarts": dict(sorted(restarts.items())),
        "schedules looked at": cycles,
        "schedules reverted": reverted,
        "drained in": round(drained, 1),
    }
    return verdict


def _wait_for_all(harness: Harness, accepted: list[UUID], deployments: Sequence[Deployment]) -> None:
    """Wait until every job has ended; reload a worker every few seconds, so that it looks for jobs that it can read."""
    reloads = cycle(deployments)
    next_at = clock.monotonic() + _RELOAD

    def done() -> bool:
        nonlocal next_at
        if clock.monotonic() >= next_at:
            next(reloads).reload()
            next_at = clock.monotonic() + _RELOAD
        try:
            return all(job.finished_at is not None for job in harness.jobs(accepted).values())
        except StoreError:
            return False

    until(done, "every accepted job has ended", _DRAIN)


def _fires_go_on(harness: Harness, verdict: Verdict) -> None:
    """Check that only the new version's schedules fire once it runs alone."""
    since = harness.store.now()
    pause(6.0)
    fired: set[str] = set()
    for row in harness.store.schedules(tenant=ALL_TENANTS):
        fires = harness.store.fires(row.id, tenant=row.tenant, limit=1)
        if fires and fires[0].job_id is not None and fires[0].fire_at >= since:
            fired.add(row.key)
    verdict.expect(fired == set(SCHEDULES[2]), "only the new version's schedules fire", sorted(fired))


def _judge(harness: Harness, accepted: list[UUID], verdict: Verdict) -> None:
    jobs = harness.jobs(accepted)
    lost = [id for id in accepted if id not in jobs]
    verdict.expect(not lost, "no accepted job is lost", lost[:5])
    failed = [
        (str(job.id), job.state.value, job.reason)
        for job in jobs.values()
        if job.state is not JobState.COMPLETED
    ]
    verdict.expect(not failed, "every job is completed", json.dumps(failed[:5]))
    misfits = 0
    for start in range(0, len(accepted), 200):
        for execution in harness.store.executions(accepted[start : start + 200], tenant=ALL_TENANTS):
            misfits += is_misfit(execution.reason)
    verdict.expect(misfits > 0, "some jobs were claimed by a worker that could not read them", misfits)
    ends = Counter(job.state.value for job in jobs.values())
    verdict.facts |= {"accepted": len(accepted), "ends": dict(ends), "handed back unread": misfits}


if __name__ == "__main__":
    main("deploys", run, cycles=40)
