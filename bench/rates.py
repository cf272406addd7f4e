"""Benchmark of a rate limit across processes.

    python3 dev.py bench rates [--stores postgres,sqlite] [--postgres URL] [--seconds 60] [--processes 4]

More jobs than can start wait for ``Rate(200, per=1 s)`` while a worker with four processes runs. The benchmark reports the share of
the allowed starts that were used, and the highest number of starts within any second, which must never exceed 200.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from bisect import bisect_right
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

from bench.engine_storage import Database, Server
from bench.limits import working
from tests.servers.postgres import running_postgres

from tidemill.domain.filters import ALL_TENANTS, JobFilter, Sort
from tidemill.domain.job import NewJob
from tidemill.domain.limits import LimitKind, Rule
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.open import open_store

RULE = Rule("rated.rate", LimitKind.RATE, 200, timedelta(seconds=1))


def begun(url: str, options: argparse.Namespace, folder: Path) -> list[float]:
    """Return the start times of jobs, in seconds."""
    store = open_store(url)
    try:
        store.migrate()
        store.put_rules([RULE])
        for _ in range(0, RULE.max * (options.seconds + 30), 1000):
            store.enqueue([NewJob(new_id(), "rated", '{"n":1}', limits=(RULE.name,)) for _ in range(1000)])
        done = JobFilter(ALL_TENANTS, states=frozenset({JobState.COMPLETED}))
        with working(url, options, folder):
            while not sum(store.count(done).values()):
                time.sleep(0.05)
            time.sleep(options.seconds + 2)
        times: list[float] = []
        cursor = None
        while True:
            page = store.jobs(done, sort=Sort.OLDEST, limit=1000, after=cursor)
            times += [job.claimed_at.timestamp() for job in page.items if job.claimed_at is not None]
            cursor = page.next
            if cursor is None:
                return sorted(times)
    finally:
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", metavar="URL", help="server to use instead of a private one")
    parser.add_argument("--stores", default="postgres,sqlite")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--processes", type=int, default=4)
    options = parser.parse_args()
    options.ms = 0.0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in options.stores.split(","):
            if name == "sqlite":
                times = begun(f"sqlite:///{folder}/jobs.db", options, folder)
            else:
                server = Server(
                    options.postgres or stack.enter_context(running_postgres(fsync=True)).url("postgres")
                )
                stack.callback(server.close)
                database = Database(server, "bench_rates")
                database.fresh()
                times = begun(database.url, options, folder)
                database.drop()
            inside = bisect_right(times, times[0] + options.seconds)
            fullest = max(bisect_right(times, at + 1 - 1e-6) - place for place, at in enumerate(times))
            allowed = RULE.max * options.seconds
            print(
                f"{name}: {inside:,} of {allowed:,} jobs started within {options.seconds} s = {inside / allowed:.2%}; "
                f"the busiest second had {fullest} of {RULE.max}",
                flush=True,
            )


if __name__ == "__main__":
    main()
