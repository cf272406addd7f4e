"""A flood: many thousand jobs that do nothing are drained as fast as can be, while runners are killed and connections terminated.

Batches are large then, and workers send their next step before the last one is answered. Nothing may be lost or end twice, and what ran
twice was in a killed runner's hands. ``python -m tests.faults.flood --store postgres --cycles 20``
"""

from __future__ import annotations

from random import Random

import psycopg
from tests.faults.checks import Verdict, judge
from tests.faults.command import main
from tests.faults.kit import Ground, Worker, pause

_SETTINGS: dict[str, object] = {"beat": 1, "expiry": 6, "lease_beat": 1, "lease_expiry": 4}
_JOBS = 3_000
"""For each blow."""

_CUT = "select pg_terminate_backend(pid) from pg_stat_activity where datname = 'faults' and pid <> pg_backend_pid()"


def run(ground: Ground, cycles: int, seed: int) -> Verdict:
    """So many blows, every other one at the connections where there are any; then peace until every job has ended."""
    random = Random(seed)
    worker = ground.supervised(2, **_SETTINGS).ready(2)
    culprits: set[int] = set()
    struck = cut = 0
    for number in range(cycles):
        ground.enqueue("noop", [{} for _ in range(_JOBS)])
        pause(random.uniform(0.0, 0.15))
        if ground.server is not None and number % 2:
            cut += _cut(ground)
        else:
            struck += _kill(worker, random, culprits)
    drained = ground.drain()
    code = worker.stop()
    verdict = judge(ground, culprits=culprits, crash_loops=True)
    verdict.expect(code == 0, "a worker that is told to stop exits with 0", code)
    verdict.expect(bool(culprits), "somebody was killed", cycles)
    verdict.facts |= {"runners_killed": struck, "connections_cut": cut, "drained_in": round(drained, 1)}
    return verdict


def _kill(worker: Worker, random: Random, culprits: set[int]) -> int:
    ready = [pid for pid in worker.runners() if f"(pid {pid}) is ready" in worker.log]
    if not ready:
        return 0
    pid = random.choice(ready)
    culprits.add(pid)
    return int(worker.kill_runner(pid))


def _cut(ground: Ground) -> int:
    assert ground.server is not None
    with psycopg.connect(ground.server.url(), autocommit=True) as operator:
        return len(operator.execute(_CUT.encode()).fetchall())


if __name__ == "__main__":
    main("flood", run, cycles=20)
