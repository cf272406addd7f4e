"""Ten idle workers on one PostgreSQL: what they ask of it, and how soon another leads when the one that does the duties dies.

``python -m tests.faults.leaders --cycles 5``: half a minute of idling, then so many dead leaders. The server writes down every
statement, so that they can be counted and named.
"""

from __future__ import annotations

import re
from collections import Counter
from random import Random
from uuid import UUID

import psycopg
from tests.faults.checks import Verdict
from tests.faults.command import main
from tests.faults.kit import Ground, Worker, clock, figures, pause, until

from tidemill.domain.cluster import Lease
from tidemill.engine.lead import NAME

TAKEN_OVER = 10.0
LOGGED = {"log_statement": "all"}
_STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]*): (.*)")
_OPTIONS = ("--processes", "1", "--concurrency", "1", "--threads", "1", "--children", "0")


def run(ground: Ground, cycles: int, seed: int) -> Verdict:
    """Ten workers, half a minute."""
    return lead(ground, cycles, seed, workers=10, idle=30.0, settle=15.0)


def lead(ground: Ground, cycles: int, seed: int, *, workers: int, idle: float, settle: float) -> Verdict:
    """Settle and idle for so long, then kill leaders.

    What a start costs is counted late: an idle backend reports its transactions only after ten seconds.
    """
    verdict, random = Verdict(), Random(seed)
    crew = [ground.worker(*_OPTIONS) for _ in range(workers)]
    for worker in crew:
        worker.ready(seconds=180)
    until(lambda: _holder(ground), "somebody leads", 60)
    pause(settle)
    asked = _idle(ground, idle)
    taken: list[float] = []
    for _ in range(cycles):
        pause(random.uniform(0.0, 3.0))  # somewhere between two beats
        taken.append(_kill_leader(ground, crew))
    verdict.expect(max(taken) <= TAKEN_OVER, f"another leads within {TAKEN_OVER:g} s", figures(taken))
    codes = [worker.stop() for worker in crew]
    verdict.expect(set(codes) == {0}, "a worker that is told to stop exits with 0", codes)
    verdict.facts |= asked | {"workers": workers, "taken_over_after": figures(taken)}
    return verdict


def _lease(ground: Ground) -> Lease | None:
    return next((lease for lease in ground.store.leases() if lease.name == NAME), None)


def _holder(ground: Ground) -> UUID | None:
    lease = _lease(ground)
    return None if lease is None else lease.holder


def _idle(ground: Ground, seconds: float) -> dict[str, object]:
    """Transactions and statements a second while nothing is to be done.

    There are more transactions than statements: a backend that listens begins one for every notification it passes on.
    """
    server = ground.server
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
        " ".join(found.split()[:5]).lower() for found in _STATEMENT.findall(text) if "pg_stat" not in found
    )
    return {
        "transactions_per_second": round((after - before) / spent, 2),
        "statements_per_second": round(sum(statements.values()) / spent, 2),
        "statements": dict(statements.most_common(8)),
    }


def _transactions(operator: psycopg.Connection[tuple[object, ...]]) -> int:
    """Of the database under test, which the operator is not connected to."""
    row = operator.execute(
        b"select xact_commit + xact_rollback from pg_stat_database where datname = 'faults'"
    ).fetchone()
    assert row is not None
    return int(str(row[0]))


def _kill_leader(ground: Ground, crew: list[Worker]) -> float:
    """Kill -9 whoever does the duties; seconds until somebody else does."""
    holder = until(lambda: _holder(ground), "somebody leads", 60)

    def leader() -> int | None:
        return next(
            (number for number, one in enumerate(crew) if f"worker {holder} does the duties" in one.log), None
        )

    number = until(lambda: (found := leader()) is not None and (found,), "the leader is known by its log", 10)
    assert isinstance(number, tuple)
    at = clock.monotonic()
    crew[number[0]].kill()
    until(lambda: _holder(ground) not in (None, holder), "another leads", 60)
    taken = clock.monotonic() - at
    crew[number[0]] = ground.worker(*_OPTIONS)
    crew[number[0]].ready(seconds=180)
    return taken


if __name__ == "__main__":
    main("leaders", run, cycles=5, stores=["postgres"], settings=LOGGED)
