"""PostgreSQL crashes and restarts, and connections broken every second.

No job is lost or runs twice, no worker process exits, work resumes within 5 s of the server's return, and the log needs few lines.
``python -m tests.faults.outages --cycles 20``: this many restarts, then three seconds of broken connections for each of them.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import psycopg
from tests.faults.checks import Verdict, judge
from tests.faults.command import main
from tests.faults.kit import Harness, Producer, Worker, clock, figures, pause, until
from tests.faults.ledger import BEGIN
from tests.servers.postgres import PrivatePostgres

RESUMED = 5.0
LINES = 12
"""Maximum number of log lines per process and outage."""

_BREAK_ALL = b"""
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = 'faults' and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Restart the server, then break connections."""
    server = harness.server
    assert server is not None
    random = Random(seed)
    worker = harness.worker("--processes", "2").ready(2)
    runners = set(worker.runners())
    verdict = Verdict()
    with Producer(harness, random) as producer:
        until(lambda: harness.ledger.of(BEGIN), "jobs are running", 60)
        written = len(worker.log.splitlines())
        resumed = [_restart(harness, server, random) for _ in range(cycles)]
        lines = len(worker.log.splitlines()) - written
        _check(verdict, worker, runners, lines, cycles)
        written = len(worker.log.splitlines())
        broken, gaps = _break_connections(harness, server, seconds=3 * cycles)
        broken_lines = len(worker.log.splitlines()) - written
        _check(verdict, worker, runners, broken_lines, 3 * cycles)
    drained = harness.drain()
    verdict.expect(max(resumed) <= RESUMED, f"work resumes within {RESUMED:g} s", figures(resumed))
    verdict.expect(max(gaps) <= RESUMED, f"no gap between begins is longer than {RESUMED:g} s", figures(gaps))
    code = worker.stop()
    verdict.expect(code == 0, "a worker exits with 0 on SIGTERM", code)
    end = judge(harness)
    end.violations[:0] = verdict.violations
    end.facts |= {
        "resumed_after": figures(resumed),
        "log_lines_per_restart": round(lines / cycles, 1),
        "connections_broken": broken,
        "longest_gap_between_begins": figures(gaps),
        "log_lines_per_second_of_breaking": round(broken_lines / (3 * cycles), 1),
        "enqueues_refused": producer.refused,
        "drained_in": round(drained, 1),
    }
    return end


def _check(verdict: Verdict, worker: Worker, runners: set[int], lines: int, times: int) -> None:
    verdict.expect(worker.alive, "the worker does not exit", worker.log[-1000:])
    verdict.expect(set(worker.runners()) == runners, "no runner exits", (runners, worker.runners()))
    most = LINES * 3 * times
    verdict.expect(lines <= most, f"{times} outages take at most {most} log lines", lines)


def _restart(harness: Harness, server: PrivatePostgres, random: Random) -> float:
    """Crash the server and start it again after a while; return the seconds until a job begins."""
    pause(random.uniform(0.2, 1.0))
    server.stop("immediate")
    # Longer than the prefetched jobs take.
    pause(random.uniform(1.0, 4.0))
    server.start()
    back_at = clock.monotonic()

    def begun() -> float:
        return next((line.at for line in reversed(harness.ledger.of(BEGIN)) if line.at > back_at), 0.0)

    until(begun, "work resumes", 60)
    return min(line.at for line in harness.ledger.of(BEGIN) if line.at > back_at) - back_at


def _break_connections(harness: Harness, server: PrivatePostgres, *, seconds: int) -> tuple[int, list[float]]:
    """Break every connection once a second; return how many, and the gaps between begins of jobs."""
    began_at = clock.monotonic()
    broken = 0
    with psycopg.connect(server.url(), autocommit=True) as operator:
        for _ in range(seconds):
            row = operator.execute(_BREAK_ALL).fetchone()
            broken += int(row[0]) if row is not None else 0
            pause(1.0)
    times = [line.at for line in harness.ledger.of(BEGIN) if line.at >= began_at]
    times = sorted([began_at, *times, clock.monotonic()])
    return broken, [after - before for before, after in pairwise(times)]


if __name__ == "__main__":
    main("outages", run, cycles=20, stores=["postgres"])
