"""Thousands of no-op jobs under killed runners and broken connections.

Batches are large, and workers send a step before the previous one is answered. No job is lost or ends twice, and every repeated
run was held by a killed runner. ``python -m tests.faults.flood --store postgres --cycles 20``
"""

from __future__ import annotations

from random import Random

import psycopg
from tests.faults.checks import Verdict, judge
from tests.faults.command import main
from tests.faults.kit import Harness, Worker, pause

_SETTINGS: dict[str, object] = {"beat": 1, "expiry": 6, "lease_beat": 1, "lease_expiry": 4}
_JOBS = 3_000
"""Jobs per fault."""

_CUT = "select pg_terminate_backend(pid) from pg_stat_activity where datname = 'faults' and pid <> pg_backend_pid()"


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Inject this many faults, every other one into the connections if there is a server; then wait until every job has ended."""
    random = Random(seed)
    worker = harness.supervised(2, **_SETTINGS).ready(2)
    culprits: set[int] = set()
    killed = cut = 0
    for number in range(cycles):
        harness.enqueue("noop", [{} for _ in range(_JOBS)])
        pause(random.uniform(0.0, 0.15))
        if harness.server is not None and number % 2:
            cut += _cut(harness)
        else:
            killed += _kill(worker, random, culprits)
    drained = harness.drain()
    code = worker.stop()
    verdict = judge(harness, culprits=culprits, crash_loops=True)
    verdict.expect(code == 0, "a worker exits with 0 on SIGTERM", code)
    verdict.expect(bool(culprits), "some runners were killed", cycles)
    verdict.facts |= {"runners_killed": killed, "connections_cut": cut, "drained_in": round(drained, 1)}
    return verdict


def _kill(worker: Worker, random: Random, culprits: set[int]) -> int:
    ready = [pid for pid in worker.runners() if f"(pid {pid}) is ready" in worker.log]
    if not ready:
        return 0
    pid = random.choice(ready)
    culprits.add(pid)
    return int(worker.kill_runner(pid))


def _cut(harness: Harness) -> int:
    assert harness.server is not None
    with psycopg.connect(harness.server.url(), autocommit=True) as operator:
        return len(operator.execute(_CUT.encode()).fetchall())


if __name__ == "__main__":
    main("flood", run, cycles=20)
