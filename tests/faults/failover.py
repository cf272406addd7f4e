"""Failover to a lagging standby, which reissues claims it has not received.

Two workers run long jobs. Each job signs its result with the run that produced it, so the ledger shows whose result the
store has kept. A zombie write is a result of a run that is not the last one of its job, or of another worker than the one the
store names. ``python -m tests.faults.failover --cycles 50``
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from uuid import UUID

from tests.faults.checks import Verdict
from tests.faults.command import main
from tests.faults.kit import Harness, clock, figures, pause, until
from tests.faults.ledger import BEGIN, Line
from tests.servers.replica import Pair, running_pair

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Move
from tidemill.domain.states import ENDED, ExecutionState, JobState
from tidemill.errors import StoreError

# Each worker has as many threads as there are thread jobs, and claims nothing ahead: jobs that still run on threads of one
# worker begin again on threads of the other.
_SETTINGS: dict[str, object] = {"beat": 1, "expiry": 30, "threads": 4, "buffer": 0, "children": 0}
_TASKS = ("sign", "sign_in_thread")
_JOBS = 8
_GAP = 1.0
"""Seconds of writes that the standby misses when it is promoted."""


class PairHarness(Harness):
    """A harness on two servers."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        pair.primary.create_database("faults")
        self.pair = pair
        super().__init__(pair.url("faults"), folder)


@contextlib.contextmanager
def paired_harness() -> Iterator[PairHarness]:
    """Yield a harness on a primary and its standby."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder, running_pair() as pair:
        harness = PairHarness(pair, Path(folder))
        try:
            yield harness
        finally:
            harness.close()


class Failovers:
    """Two workers and a series of failovers."""

    def __init__(self, harness: PairHarness, random: Random) -> None:
        self._harness, self._random = harness, random
        self.workers = [harness.supervised(1, **_SETTINGS) for _ in range(2)]
        for worker in self.workers:
            worker.ready()
        self.jobs: list[UUID] = []
        self.again_after: list[float] = []  #: seconds from the kill until the last job has begun again

    def cycle(self) -> None:
        """Make claims that the standby misses, fail over, and end jobs before, during or after it."""
        harness, pair = self._harness, self._harness.pair
        gate = harness.gate()
        jobs = [
            job.id
            for task in _TASKS
            for job in harness.fault_app.tasks[task]
            .using(delay=timedelta(days=1))
            .enqueue_many([{"gate": str(gate)}] * (_JOBS // 2))
        ]
        pair.wait_for_receiver()
        pair.halt_receiver()
        self._release(jobs)
        harness.begun(jobs)
        pause(_GAP * self._random.uniform(0.5, 1.5))
        early = self._random.random() < 0.5
        pair.kill_primary()
        killed_at = clock.monotonic()
        # These runs end while no store is available.
        if early:
            (gate / "all").touch()
        pause(self._random.uniform(0, 1.0))
        pair.promote()
        self._release(jobs)
        until(lambda: len(self._runs(jobs, killed_at)) == len(jobs), "every job begins again", 60)
        self.again_after.append(max(line.at for line in self._runs(jobs, killed_at).values()) - killed_at)
        (gate / "all").touch()
        until(lambda: self._all_ended(jobs), "every job has ended", 60)
        self.jobs += jobs
        pair.add_standby()

    def _release(self, jobs: Sequence[UUID]) -> None:
        """Make these jobs pending as soon as a store is available: the standby still has them as scheduled."""
        moves = [Move(id, "default", frozenset({JobState.SCHEDULED}), JobState.PENDING) for id in jobs]

        def moved() -> bool:
            try:
                changed = self._harness.store.move(moves)
                self._harness.store.notify(["ready:default"])
            except StoreError:
                return False
            return changed == set(jobs)

        until(moved, "the jobs are scheduled and the store accepts writes", 60)

    def _runs(self, jobs: Sequence[UUID], since: float) -> dict[UUID, Line]:
        return {line.job: line for line in self._harness.ledger.of(BEGIN, jobs) if line.at > since}

    def _all_ended(self, jobs: Sequence[UUID]) -> bool:
        return all(job.state in ENDED for job in self._harness.jobs(jobs).values())

    def refused(self) -> int:
        """Return the number of ends that the store refused, from the workers' logs."""
        matches = [
            re.findall(r"the results of (\d+) jobs were not written", worker.log) for worker in self.workers
        ]
        return sum(int(count) for counts in matches for count in counts)


def zombie_writes(harness: Harness, jobs: Sequence[UUID]) -> list[str]:
    """Return results of a run that is not its job's last, or of a worker that the store does not name."""
    pids = {worker.id: worker.pid for worker in harness.store.workers()}
    last = {line.job: line for line in harness.ledger.of(BEGIN, jobs)}
    violations: list[str] = []
    for job in harness.jobs(jobs).values():
        pid, at = json.loads(job.result or "[null, null]")
        line = last[job.id]
        if (pid, at) != (line.pid, line.at):
            violations.append(f"{job.id}: the result is of a run that began at {at} in {pid}, not of {line}")
        elif job.worker is None or pids.get(job.worker) != pid:
            violations.append(
                f"{job.id}: the result of process {pid} is stored as that of worker {job.worker}"
            )
    return violations


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Run this many failovers."""
    assert isinstance(harness, PairHarness)
    failovers = Failovers(harness, Random(seed))
    runners = {pid for worker in failovers.workers for pid in worker.runners()}
    for _ in range(cycles):
        failovers.cycle()
    still = {pid for worker in failovers.workers for pid in worker.runners()}
    jobs = harness.jobs(failovers.jobs)
    begins: dict[UUID, list[Line]] = {}
    for line in harness.ledger.of(BEGIN, failovers.jobs):
        begins.setdefault(line.job, []).append(line)
    passed_on = sum(len({line.pid for line in lines}) > 1 for lines in begins.values())
    reissued = sum(len({(line.token, line.pid) for line in lines}) < len(lines) for lines in begins.values())
    crashed = [
        execution.job_id
        for execution in harness.store.executions(failovers.jobs, tenant=ALL_TENANTS)
        if execution.state is ExecutionState.CRASHED
    ]
    codes = [worker.stop() for worker in failovers.workers]
    zombies = zombie_writes(harness, failovers.jobs)
    verdict = Verdict()
    verdict.expect(not zombies, "only the current run writes the job's result", zombies[:5])
    ends = {str(job.state): 0 for job in jobs.values()}
    for job in jobs.values():
        ends[str(job.state)] += 1
    verdict.expect(set(ends) == {JobState.COMPLETED.value}, "every job is completed", ends)
    verdict.expect(not crashed, "no live worker loses a job", crashed[:5])
    verdict.expect(still == runners, "no runner ends", (runners, still))
    verdict.expect(
        passed_on > 0, "some jobs moved to another worker (otherwise the run proves nothing)", passed_on
    )
    verdict.expect(codes == [0, 0], "a worker exits with 0 on SIGTERM", codes)
    verdict.facts |= {
        "ends": ends,
        "claims_lost_in_failovers": len(failovers.jobs),
        "issued_again_to_another_worker": passed_on,
        "issued_again_with_the_same_token_to_the_same_worker": reissued,
        "ends_refused": failovers.refused(),
        "zombie_writes": len(zombies),
        "all_begun_again_after": figures(failovers.again_after),
    }
    return verdict


if __name__ == "__main__":
    main("failover", run, cycles=50, stores=["postgres"], harness=paired_harness)
