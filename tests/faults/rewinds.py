"""A fault: PostgreSQL fails over to a lagging standby and loses recent writes.

Jobs accepted while the standby lagged may be lost; the run reports how many. A job claimed in that time is claimed again with
the same token, and only the worker that holds it now may write its end.
"""

from __future__ import annotations

from random import Random
from uuid import UUID

from tests.faults.chaos_app import ChaosApp
from tests.faults.cluster import Cluster
from tests.faults.invariants import Finding
from tests.faults.kit import pause
from tests.faults.ledger import BEGIN
from tests.faults.phases import PhaseResult
from tests.faults.sandbox import Sandbox, open_sandbox
from tests.servers.replica import running_pair

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Execution
from tidemill.domain.states import JobState

INVARIANT = "I30"

_JOBS = 24
_SECONDS = 6.0
_QUEUE = "default"


def run(cluster: Cluster, random: Random) -> PhaseResult:
    """Claim jobs while the standby lags, promote it, and let workers claim them again."""
    with running_pair() as pair:
        pair.primary.create_database("faults")
        with open_sandbox(cluster, "rewound database", url=pair.url("faults")) as sandbox:
            chaos_app = ChaosApp(sandbox.url)
            for _ in range(2):
                sandbox.worker()
            for worker in sandbox.workers:
                worker.ready()
            chaos_app.app.control.pause("queue", _QUEUE, reason="until the standby lags")
            kept = _enqueue(chaos_app, _JOBS)
            pair.wait_for_receiver()
            pair.halt_receiver()
            chaos_app.app.control.resume("queue", _QUEUE)
            _begun(sandbox, kept, 30)
            gap = _enqueue(chaos_app, _JOBS // 2)
            pause(random.uniform(0.8, 1.2))
            pair.kill_primary()
            pair.promote()
            sandbox.wait(
                lambda: (chaos_app.app.control.resume("queue", _QUEUE), True)[1], "the standby answers", 60
            )
            later = sandbox.wait(lambda: _enqueue(chaos_app, _JOBS // 2), "jobs are accepted again", 60)
            sandbox.drain(90)
            result = _judge(sandbox, kept, gap, later)
            chaos_app.app.close()
    return result


def _enqueue(chaos_app: ChaosApp, count: int) -> list[UUID]:
    return [job.id for job in chaos_app.tasks["stamp"].enqueue_many([{"seconds": _SECONDS}] * count)]


def _begun(sandbox: Sandbox, jobs: list[UUID], seconds: float) -> None:
    sandbox.wait(lambda: len(sandbox.ledger.of(BEGIN, jobs)) == len(jobs), "the jobs began", seconds)


def _judge(sandbox: Sandbox, kept: list[UUID], gap: list[UUID], later: list[UUID]) -> PhaseResult:
    stored = sandbox.jobs([*kept, *gap, *later])
    pids = {worker.id: worker.pid for worker in sandbox.store.workers()}
    executions: dict[UUID, Execution] = {}
    for one in sandbox.store.executions(list(stored), tenant=ALL_TENANTS):
        if one.job_id not in executions or one.number > executions[one.job_id].number:
            executions[one.job_id] = one
    broken = [
        f"job {id} was accepted outside the gap and does not exist"
        for id in (*kept, *later)
        if id not in stored
    ]
    zombies = 0
    for id, job in stored.items():
        if job.state is not JobState.COMPLETED:
            broken.append(f"job {id} is {job.state}: {job.reason}")
            continue
        worker = executions[id].worker
        holder = None if worker is None else pids.get(worker)
        if job.result != str(holder):
            zombies += 1
            broken.append(f"job {id}: pid {holder} held it, but the result is from pid {job.result}")
    begun = sandbox.ledger.of(BEGIN, kept)
    facts = {
        "accepted_in_the_gap": len(gap),
        "lost_of_the_gap": len([id for id in gap if id not in stored]),
        "begun_again": len(begun) - len(kept),
        "zombie_writes": zombies,
    }
    return PhaseResult(1, {INVARIANT: Finding(len(stored), broken)}, facts)
