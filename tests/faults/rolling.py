"""A fault: two releases run side by side, and runners of the older one restart.

The newer release decides the declared schedules, even after the older one is gone. No job fails because an older release does
not know one of its arguments.
"""

from __future__ import annotations

from random import Random
from uuid import UUID

from tests.faults.cluster import Cluster
from tests.faults.invariants import Finding
from tests.faults.kit import Stuck, Worker
from tests.faults.phases import PhaseResult
from tests.faults.rolling_app import KEYS, NAME, RELEASE, Release
from tests.faults.sandbox import Sandbox, open_sandbox

from tidemill import Every
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.schedules import ScheduleRow
from tidemill.domain.states import JobState

INVARIANT = "I27"
_KILLS = 3
_CALLS = 15


def run(cluster: Cluster, random: Random) -> PhaseResult:
    """Start the old release, start the new one, kill old runners, then stop the old release."""
    broken: list[str] = []
    ids: list[UUID] = []
    with open_sandbox(cluster, "rolling deploy") as sandbox:
        release = Release(sandbox.url, 2)
        old = sandbox.worker(NAME, processes=2, more={RELEASE: "1"}).ready(2)
        new = sandbox.worker(NAME, more={RELEASE: "2"}).ready()
        _check_schedules(sandbox, broken, "after the new release started")
        for number in range(_KILLS):
            ids += _greet(release)
            _replace_runner(old, random)
            ids += _greet(release)
            _check_schedules(sandbox, broken, f"after runner {number + 1} of the old release was replaced")
        if code := old.stop():
            broken.append(f"the old worker exited with {code}: {old.log[-300:]}")
        _check_schedules(sandbox, broken, "after the old release stopped")
        ids += _greet(release)
        before = _fires(sandbox, "added")
        try:
            sandbox.wait(lambda: _fires(sandbox, "added") > before + 1, "the added schedule fires", 20)
        except Stuck as stuck:
            broken.append(f"{stuck}; it has {before} fires")
        sandbox.drain(60)
        broken += [
            f"job {id} is {job.state}: {job.reason}"
            for id, job in sandbox.jobs(ids).items()
            if job.state is not JobState.COMPLETED
        ]
        facts = {"jobs": len(ids), "kills": _KILLS, "fires": {key: _fires(sandbox, key) for key in KEYS}}
        new.stop()
        release.app.close()
    return PhaseResult(1, {INVARIANT: Finding(len(ids) + _KILLS + 3, broken)}, facts)


def _greet(release: Release) -> list[UUID]:
    """Enqueue jobs with the argument that only the new release knows."""
    return [job.id for job in release.greet.enqueue_many([{"name": "Ada", "region": "south"}] * _CALLS)]


def _replace_runner(worker: Worker, random: Random) -> None:
    """Kill a runner, and wait until its successor has reconciled the schedules."""
    ready = worker.readies()
    worker.kill_runner(random.choice(worker.runners()))
    worker.ready(ready + 1)


def _schedules(sandbox: Sandbox) -> dict[str, ScheduleRow]:
    return {row.key: row for row in sandbox.store.schedules(tenant=ALL_TENANTS)}


def _fires(sandbox: Sandbox, key: str) -> int:
    row = _schedules(sandbox).get(key)
    return 0 if row is None else len(sandbox.store.fires(row.id, tenant=row.tenant, limit=500))


def _check_schedules(sandbox: Sandbox, broken: list[str], when: str) -> None:
    """Compare the stored schedules with those of the new release."""
    rows = _schedules(sandbox)
    for key, (_, interval) in KEYS.items():
        row = rows.get(key)
        if interval is None and row is not None and row.enabled:
            broken.append(f"{when}: schedule {key!r} is enabled, but the new release has removed it")
        elif interval is not None and (row is None or not row.enabled):
            broken.append(f"{when}: schedule {key!r} of the new release does not fire: {row and row.note}")
        elif interval is not None and row is not None and row.trigger != Every(interval).to_data():
            broken.append(
                f"{when}: schedule {key!r} is {row.trigger}, but the new release declares {interval}"
            )
