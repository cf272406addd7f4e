"""Time until the jobs of a dead runner, or of a dead worker, begin again.

All settings are the defaults: heartbeats of 5 s, leases of 30 s. ``python -m tests.faults.orphans --store postgres --cycles 5``
"""

from __future__ import annotations

from random import Random
from uuid import UUID

from tests.faults.checks import Verdict, judge
from tests.faults.command import main
from tests.faults.kit import Harness, Worker, clock, figures, pause
from tests.faults.ledger import Line

from tidemill.domain.filters import ALL_TENANTS

RUNNER_BOUND = 2.0
WORKER_BOUND = 37.0
_TASKS = ("hold", "hold_in_thread", "hold_alone")


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Kill this many runners, then this many workers."""
    random = Random(seed)
    culprits: set[int] = set()
    claimed: list[float] = []
    runners = kill_runners(harness, cycles, random, culprits, claimed)
    workers = kill_workers(harness, cycles, random, culprits)
    verdict = judge(harness, culprits=culprits, crash_loops=True)
    verdict.expect(
        max(runners) <= RUNNER_BOUND, f"orphans of a runner begin again within {RUNNER_BOUND:g} s", runners
    )
    verdict.expect(
        max(workers) <= WORKER_BOUND, f"orphans of a worker begin again within {WORKER_BOUND:g} s", workers
    )
    verdict.facts |= {
        "after_a_runner": figures(runners),
        "of_which_until_claimed_again": figures(claimed, 3),
        "after_a_worker": figures(workers),
    }
    return verdict


def _by_runner(lines: list[Line], runners: list[int]) -> dict[int, list[UUID]]:
    """Return the jobs that run in each of these processes or in one of its children."""
    jobs_of = {pid: [line.job for line in lines if pid in (line.pid, line.parent)] for pid in runners}
    return {pid: jobs for pid, jobs in jobs_of.items() if jobs}


def kill_runners(
    harness: Harness, cycles: int, random: Random, culprits: set[int], claimed: list[float]
) -> list[float]:
    """Kill runners one by one; return the seconds until each orphan began again.

    ``claimed`` receives the seconds until each orphan was claimed. The difference is the start of an isolated process for a suspect,
    unless one is already running.
    """
    worker = harness.worker("--processes", "2", "--children", "4").ready(2)
    delays: list[float] = []
    for cycle in range(cycles):
        gate = harness.gate()
        jobs = [
            id for task in _TASKS for id in harness.enqueue(task, [{"gate": str(gate)} for _ in range(2)])
        ]
        lines = harness.begun(jobs)
        pid, orphans = random.choice(list(_by_runner(lines, worker.runners()).items()))
        at, moment = clock.monotonic(), clock.now()
        assert worker.kill_runner(pid)
        culprits.add(pid)
        # Suspects run alone, and there may be fewer children than suspects: each one must end for the next to start.
        for id in orphans:
            (gate / f"{id}.2").touch()
        delays += [line.at - at for line in harness.begun(orphans, 2)]
        claimed += [
            (one.claimed_at - moment).total_seconds()
            for one in harness.store.executions(orphans, tenant=ALL_TENANTS)
            if one.number == 2 and one.claimed_at is not None
        ]
        (gate / "all").touch()
        worker.ready(3 + cycle)
    harness.drain()
    worker.stop()
    return delays


def kill_workers(harness: Harness, cycles: int, random: Random, culprits: set[int]) -> list[float]:
    """Kill all workers but one at random moments; return the seconds until each orphan began again."""
    workers = [harness.worker("--processes", "1", "--children", "4") for _ in range(cycles + 1)]
    for worker in workers:
        worker.ready()
    gate = harness.gate()
    killed: list[tuple[float, list[UUID]]] = []
    for _ in range(cycles):
        pause(random.uniform(0, 4))
        jobs = harness.enqueue("hold", [{"gate": str(gate)} for _ in range(3)])
        lines = harness.begun(jobs)
        victim, orphans = _pick(workers, lines, random)
        at = clock.monotonic()
        culprits |= victim.kill()
        workers.remove(victim)
        for id in orphans:
            (gate / f"{id}.2").touch()
        killed.append((at, orphans))
    delays = [line.at - at for at, orphans in killed for line in harness.begun(orphans, 2)]
    (gate / "all").touch()
    harness.drain()
    workers[0].stop()
    return delays


def _pick(workers: list[Worker], lines: list[Line], random: Random) -> tuple[Worker, list[UUID]]:
    """Pick a worker that holds some of these jobs; return it with its jobs."""
    held = {
        number: [job for jobs in _by_runner(lines, worker.runners()).values() for job in jobs]
        for number, worker in enumerate(workers)
    }
    number = random.choice([number for number, jobs in held.items() if jobs])
    return workers[number], held[number]


if __name__ == "__main__":
    main("orphans", run, cycles=5)
