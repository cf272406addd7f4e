"""How long orphans wait: from the death of a runner, and from the death of a whole worker, to the next beginning of what they
ran. Everything is as it is by default: beats of 5 s, leases of 30 s.

``python -m tests.faults.orphans --store postgres --cycles 5``
"""

from __future__ import annotations

from random import Random
from uuid import UUID

from tests.faults.checks import Verdict, judge
from tests.faults.command import main
from tests.faults.kit import Ground, Worker, clock, figures, pause
from tests.faults.ledger import Line

from tidemill.domain.filters import ALL_TENANTS

RUNNER_BOUND = 2.0
WORKER_BOUND = 37.0
_TASKS = ("hold", "hold_in_thread", "hold_alone")


def run(ground: Ground, cycles: int, seed: int) -> Verdict:
    """So many runners, then so many workers."""
    random = Random(seed)
    culprits: set[int] = set()
    claimed: list[float] = []
    runners = kill_runners(ground, cycles, random, culprits, claimed)
    workers = kill_workers(ground, cycles, random, culprits)
    verdict = judge(ground, culprits=culprits, crash_loops=True)
    verdict.expect(
        max(runners) <= RUNNER_BOUND, f"a runner's orphans are back within {RUNNER_BOUND:g} s", runners
    )
    verdict.expect(
        max(workers) <= WORKER_BOUND, f"a worker's orphans are back within {WORKER_BOUND:g} s", workers
    )
    verdict.facts |= {
        "after_a_runner": figures(runners),
        "of_which_until_claimed_again": figures(claimed, 3),
        "after_a_worker": figures(workers),
    }
    return verdict


def _by_runner(lines: list[Line], runners: list[int]) -> dict[int, list[UUID]]:
    """Which jobs run in which of these processes, or in a child of it."""
    found = {pid: [line.job for line in lines if pid in (line.pid, line.parent)] for pid in runners}
    return {pid: jobs for pid, jobs in found.items() if jobs}


def kill_runners(
    ground: Ground, cycles: int, random: Random, culprits: set[int], claimed: list[float]
) -> list[float]:
    """Kill one of two runners after the other; seconds until each orphan began again, and was ``claimed`` for that.

    What lies between the two is the start of a process to run it alone in, unless one is there already.
    """
    worker = ground.worker("--processes", "2", "--children", "4").ready(2)
    delays: list[float] = []
    for cycle in range(cycles):
        gate = ground.gate()
        jobs = [id for task in _TASKS for id in ground.enqueue(task, [{"gate": str(gate)} for _ in range(2)])]
        lines = ground.begun(jobs)
        pid, orphans = random.choice(list(_by_runner(lines, worker.runners()).items()))
        at, moment = clock.monotonic(), clock.now()
        assert worker.kill_runner(pid)
        culprits.add(pid)
        for id in (
            orphans
        ):  # suspects run alone, and there may be fewer children than suspects: each lets the next one in
            (gate / f"{id}.2").touch()
        delays += [line.at - at for line in ground.begun(orphans, 2)]
        claimed += [
            (one.claimed_at - moment).total_seconds()
            for one in ground.store.executions(orphans, tenant=ALL_TENANTS)
            if one.number == 2 and one.claimed_at is not None
        ]
        (gate / "all").touch()
        worker.ready(3 + cycle)
    ground.drain()
    worker.stop()
    return delays


def kill_workers(ground: Ground, cycles: int, random: Random, culprits: set[int]) -> list[float]:
    """Kill one worker after the other at odd moments, and leave one; seconds until each orphan began again there."""
    workers = [ground.worker("--processes", "1", "--children", "4") for _ in range(cycles + 1)]
    for worker in workers:
        worker.ready()
    gate = ground.gate()
    killed: list[tuple[float, list[UUID]]] = []
    for _ in range(cycles):
        pause(random.uniform(0, 4))
        jobs = ground.enqueue("hold", [{"gate": str(gate)} for _ in range(3)])
        lines = ground.begun(jobs)
        victim, orphans = _pick(workers, lines, random)
        at = clock.monotonic()
        culprits |= victim.kill()
        workers.remove(victim)
        for id in orphans:
            (gate / f"{id}.2").touch()
        killed.append((at, orphans))
    delays = [line.at - at for at, orphans in killed for line in ground.begun(orphans, 2)]
    (gate / "all").touch()
    ground.drain()
    workers[0].stop()
    return delays


def _pick(workers: list[Worker], lines: list[Line], random: Random) -> tuple[Worker, list[UUID]]:
    """A worker that holds some of these, and which."""
    held = {
        number: [job for jobs in _by_runner(lines, worker.runners()).values() for job in jobs]
        for number, worker in enumerate(workers)
    }
    number = random.choice([number for number, jobs in held.items() if jobs])
    return workers[number], held[number]


if __name__ == "__main__":
    main("orphans", run, cycles=5)
