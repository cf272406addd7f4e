"""How soon a tenant with little gets its turn beside one with much.

    python3 dev.py bench fairness [--stores postgres,sqlite] [--postgres URL] [--jobs 200000] [--times 5] [--ms 1] [--processes 2]

Tenant ``a`` has so many jobs pending and a worker with two processes is busy with them; then tenant ``b`` adds ten, several times.
Told is how long after they were enqueued each of b's jobs began, the worst of ten and of all times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.engine_ground import Database, Server
from bench.limits import working

from tidemill.domain.filters import JobFilter
from tidemill.domain.job import NewJob
from tidemill.domain.states import ENDED, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.testing.postgres import running_postgres

TASK = "plain"


def put(store: Store, tenant: str, count: int) -> list[NewJob]:
    jobs = [NewJob(new_id(), TASK, '{"n":1}', tenant=tenant) for _ in range(count)]
    for at in range(0, count, 1000):
        store.enqueue(jobs[at : at + 1000])
    store.notify(["ready:default"])
    return jobs


def waits(url: str, options: argparse.Namespace, folder: Path) -> list[float]:
    """Seconds that the last of ten waited, each time."""
    store = open_store(url)
    try:
        store.migrate()
        put(store, "a", options.jobs)
        found: list[float] = []
        with working(url, options, folder):
            for number in range(options.times):
                ended = JobFilter("a", states=ENDED)
                while sum(store.count(ended).values()) < 500 * (number + 1):
                    time.sleep(0.1)
                mine = put(store, "b", 10)
                while True:
                    rows = store.get([job.id for job in mine], tenant="b")
                    if all(row.state in ENDED for row in rows):
                        break
                    time.sleep(0.05)
                found.append(
                    max((row.started_at - row.created_at).total_seconds() for row in rows if row.started_at)
                )
            left = sum(store.count(JobFilter("a", states=frozenset({JobState.PENDING}))).values())
            assert left, "tenant a had too few jobs: nobody was busy any more"
        return found
    finally:
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", metavar="URL", help="a server to use instead of a private one")
    parser.add_argument("--stores", default="postgres,sqlite")
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--ms", type=float, default=1.0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in options.stores.split(","):
            if name == "sqlite":
                found = waits(f"sqlite:///{folder}/jobs.db", options, folder)
            else:
                server = Server(
                    options.postgres or stack.enter_context(running_postgres(fsync=True)).url("postgres")
                )
                stack.callback(server.close)
                database = Database(server, "bench_fairness")
                database.fresh()
                found = waits(database.url, options, folder)
                database.drop()
            said = ", ".join(f"{seconds:.3f}" for seconds in found)
            print(f"{name}: the last of ten began after {said} s; worst {max(found):.3f} s (aim: 1 s)")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
