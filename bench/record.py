"""Cost of ``record``: drain rate and bytes of write-ahead log per job, with each of its values in turn.

    python3 dev.py bench record [--jobs 20000] [--rounds 3]

A private PostgreSQL with durable commits. Every round drains the same number of no-op jobs with each value, every second round in
reverse order. The log is measured from the first claim to the last finish, after a checkpoint.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from typing import Any

import psycopg
from tests.servers.postgres import running_postgres

from tidemill import App, Context

VALUES = ("full", "last", "none")


def app_of(url: str) -> App:
    """Return an app with one no-op task per value, and one that succeeds at its second attempt."""
    app = App(url, migrate=True)

    def declare(value: Any) -> None:
        @app.task(name=f"plain_{value}", record=value)
        async def plain(n: int) -> None: ...

        @app.task(name=f"flaky_{value}", record=value, retry="immediate")
        async def flaky(ctx: Context, n: int) -> None:
            if ctx.attempt == 1:
                raise ValueError(n)

    for value in VALUES:
        declare(value)
    return app


def drain(app: App, url: str, task: str, jobs: int) -> tuple[float, float]:
    """Drain jobs of one task; return the rate, and the bytes of log per job."""
    left = jobs
    app.bound_task(task).enqueue_many([{"n": n} for n in range(jobs)])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("checkpoint")
        before = _position(connection)
        began = time.perf_counter()
        with app.worker(concurrency=200):
            while left:
                time.sleep(0.02)
                row = connection.execute(
                    "select (select count(*) from tidemill.ready) + (select count(*) from tidemill.running)"
                    " + (select count(*) from tidemill.scheduled)"
                ).fetchone()
                left = row[0] if row else 0
            took = time.perf_counter() - began
        return jobs / took, (_position(connection) - before) / jobs


def _position(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    logging.getLogger("tidemill").setLevel(logging.CRITICAL)  # the retried jobs would fill the terminal
    rates: dict[str, list[float]] = {}
    logs: dict[str, list[float]] = {}
    with running_postgres(fsync=True) as server:
        url = server.create_database("record")
        with app_of(url) as app:
            for value in VALUES:
                drain(app, url, f"plain_{value}", 500)
            for turn in range(options.rounds):
                order = VALUES if turn % 2 == 0 else VALUES[::-1]
                for kind, jobs in (("plain", options.jobs), ("flaky", options.jobs // 4)):
                    for value in order:
                        rate, log = drain(app, url, f"{kind}_{value}", jobs)
                        rates.setdefault(f"{kind} {value}", []).append(rate)
                        logs.setdefault(f"{kind} {value}", []).append(log)
    print("jobs            rate/s (rounds)                  log bytes/job")
    for name, found in rates.items():
        rounds = " ".join(f"{rate:.0f}" for rate in found)
        print(
            f"{name:<15} {statistics.median(found):>7.0f} ({rounds})  {statistics.median(logs[name]):>8.0f}"
        )


if __name__ == "__main__":
    main()
