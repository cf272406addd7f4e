"""Query load and leader changes of ten idle workers on one PostgreSQL.

``python -m tests.faults.leaders --cycles 5``: half a minute of idling, then this many killed leaders. The server logs every
statement, so that the run can count and name them.
"""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from uuid import UUID

import psycopg
from tests.faults.checks import Verdict
from tests.faults.command import main
from tests.faults.kit import Harness, Worker, clock, figures, pause, until

from tidemill.domain.cluster import Lease
from tidemill.engine.leadership import NAME

TAKEN_OVER = 10.0
LOGGED = {"log_statement": "all"}
_STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]*): (.*)")
_OPTIONS = ("--processes", "1", "--concurrency", "1", "--threads", "1", "--children", "0")


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Run ten workers for half a minute."""
    return lead(harness, cycles, seed, workers=10, idle=30.0, settle=15.0)


def lead(harness: Harness, cycles: int, seed: int, *, workers: int, idle: float, settle: float) -> Verdict:
    """Let workers settle and idle, then kill leaders.

    The cost of a start is counted late: an idle backend reports its transactions only after ten seconds.
    """
    verdict, random = Verdict(), Random(seed)
    crew = [harness.worker(*_OPTIONS) for _ in range(workers)]
    for worker in crew:
        worker.ready(seconds=180)
    until(lambda: _holder(harness), "a leader is elected", 60)
    pause(settle)
    load = _idle(harness, idle)
    taken: list[float] = []
    for _ in range(cycles):
        # A random point between two heartbeats.
        pause(random.uniform(0.0, 3.0))
        taken.append(_kill_leader(harness, crew))
    verdict.expect(
        max(taken) <= TAKEN_OVER, f"a new leader is elected within {TAKEN_OVER:g} s", figures(taken)
    )
    codes = [worker.stop() for worker in crew]
    verdict.expect(set(codes) == {0}, "a worker exits with 0 on SIGTERM", codes)
    verdict.facts |= load | {"workers": workers, "taken_over_after": figures(taken)}
    return verdict


def _lease(harness: Harness) -> Lease | None:
    return next((lease for lease in harness.store.leases() if lease.name == NAME), None)


def _holder(harness: Harness) -> UUID | None:
    lease = _lease(harness)
    return None if lease is None else lease.holder


def _idle(harness: Harness, seconds: float) -> dict[str, object]:
    """Return transactions and statements per second while there are no jobs.

    There are more transactions than statements: a listening backend begins one for every notification it forwards.
    """
    server = harness.server
    assert server is not None
    with psycopg.connect(server.url(), autocommit=True) as operator:
        before, at, offset = _transactions(operator), clock.monotonic(), server.log.stat().st_size
        pause(seconds)
        spent, size = clock.monotonic() - at, server.log.stat().st_size
        after = _transactions(operator)
    with server.log.open("rb") as file:
        file.seek(offset)
        text = file.read(size - offset).decode(errors="replace")
    statements = Counter(
        " ".join(statement.split()[:5]).lower()
        for statement in _STATEMENT.findall(text)
        if "pg_stat" not in statement
    )
    return {
        "transactions_per_second": round((after - before) / spent, 2),
        "statements_per_second": round(sum(statements.values()) / spent, 2),
        "statements": dict(statements.most_common(8)),
    }


def _transactions(operator: psycopg.Connection[tuple[object, ...]]) -> int:
    """Count transactions of the database under test, to which the operator is not connected."""
    row = operator.execute(
        b"select xact_commit + xact_rollback from pg_stat_database where datname = 'faults'"
    ).fetchone()
    assert row is not None
    return int(str(row[0]))


def _kill_leader(harness: Harness, crew: list[Worker]) -> float:
    """Kill the leader with SIGKILL; return the seconds until another one is elected."""
    holder = until(lambda: _holder(harness), "a leader is elected", 60)

    def leader() -> int | None:
        return next(
            (number for number, one in enumerate(crew) if f"worker {holder} runs the duties" in one.log), None
        )

    number = until(
        lambda: (index := leader()) is not None and (index,), "the leader has logged its election", 10
    )
    assert isinstance(number, tuple)
    at = clock.monotonic()
    crew[number[0]].kill()
    until(lambda: _holder(harness) not in (None, holder), "another leader is elected", 60)
    taken = clock.monotonic() - at
    crew[number[0]] = harness.worker(*_OPTIONS)
    crew[number[0]].ready(seconds=180)
    return taken


if __name__ == "__main__":
    main("leaders", run, cycles=5, stores=["postgres"], settings=LOGGED)
