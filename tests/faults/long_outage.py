"""A PostgreSQL outage of twenty seconds while workers hold long jobs.

Every job ends in the run in which it began; no live worker loses a job, and no process exits.
``python -m tests.faults.long_outage --cycles 5``
"""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.faults.checks import Verdict
from tests.faults.command import main
from tests.faults.kit import Harness, clock, figures, pause
from tests.faults.ledger import BEGIN

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.states import ExecutionState

SECONDS = 20.0
_TASKS = ("hold", "hold_in_thread", "hold_alone")


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Run this many outages."""
    server, random = harness.server, Random(seed)
    assert server is not None
    workers = [harness.worker("--processes", "2").ready(2) for _ in range(2)]
    runners = {pid for worker in workers for pid in worker.runners()}
    drained: list[float] = []
    for _ in range(cycles):
        gate = harness.gate()
        jobs = [id for task in _TASKS for id in harness.enqueue(task, [{"gate": str(gate)}] * 4)]
        harness.begun(jobs)
        # Some time passes since the last heartbeat.
        pause(random.uniform(0, 5))
        server.stop("immediate")
        pause(SECONDS)
        server.start()
        # Twice the interval at which workers look for jobs of dead workers.
        pause(10)
        (gate / "all").touch()
        back_at = clock.monotonic()
        harness.drain()
        drained.append(clock.monotonic() - back_at)
    still = {pid for worker in workers for pid in worker.runners()}
    accepted = harness.ledger.accepted()
    crashed = [
        execution.job_id
        for execution in harness.store.executions(accepted, tenant=ALL_TENANTS)
        if execution.state is ExecutionState.CRASHED
    ]
    begun = Counter(line.job for line in harness.ledger.of(BEGIN))
    verdict = Verdict()
    verdict.expect(not crashed, "no live worker loses a job", crashed[:5])
    verdict.expect(set(begun.values()) == {1}, "no job begins twice", begun.most_common(5))
    verdict.expect(still == runners, "no runner exits", (runners, still))
    codes = [worker.stop() for worker in workers]
    verdict.expect(codes == [0, 0], "a worker exits with 0 on SIGTERM", codes)
    ends = Counter(str(job.state) for job in harness.jobs(accepted).values())
    verdict.expect(set(ends) == {"completed"}, "every job is completed", dict(ends))
    verdict.facts |= {
        "ends": dict(ends),
        "jobs_taken_from_living_workers": len(crashed),
        "begun_twice": sum(count > 1 for count in begun.values()),
        "drained_after": figures(drained),
    }
    return verdict


if __name__ == "__main__":
    main("long_outage", run, cycles=5, stores=["postgres"])
