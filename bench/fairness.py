"""Benchmark of the waiting time of a quiet tenant next to a noisy one.

    python3 dev.py bench fairness [--stores postgres,sqlite] [--cases plain,queues,tenants,priority] [--jobs 100000] [--times 40]

Tenant ``noisy`` has 100,000 jobs pending and one runner is busy with them. Tenant ``quiet`` adds one job every half second. The
benchmark reports how long after they were enqueued these jobs started, as the median and the worst, for each case: ``plain`` (one
queue), ``queues`` (1,000 queue names), ``tenants`` (1,000 tenants ``noisy/…``, which form one share group) and ``priority`` (priority 1).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.engine_storage import Database, Server
from bench.limits import working
from tests.servers.postgres import running_postgres

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import NewJob
from tidemill.domain.states import ENDED, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.open import open_store

TASK = "plain"
MANY = 1000
CASES = ("plain", "queues", "tenants", "priority")


def noisy(case: str, count: int) -> list[NewJob]:
    """Return the jobs of the noisy tenant."""
    jobs = []
    for number in range(count):
        part = number % MANY
        jobs.append(
            NewJob(
                new_id(),
                TASK,
                '{"n":1}',
                tenant=f"noisy/{part}" if case == "tenants" else "noisy",
                queue=f"queue-{part}" if case == "queues" else "default",
                priority=1 if case == "priority" else 0,
            )
        )
    return jobs


def put(store: Store, jobs: list[NewJob]) -> None:
    for at in range(0, len(jobs), 1000):
        store.enqueue(jobs[at : at + 1000])
    store.notify([f"ready:{queue}" for queue in {job.queue for job in jobs}])


def waits(url: str, case: str, options: argparse.Namespace, folder: Path) -> list[float | None]:
    """Return the seconds that each job of the quiet tenant waited; None for a job that did not start in time."""
    store = open_store(url)
    try:
        store.migrate()
        put(store, noisy(case, options.jobs))
        mine: list[NewJob] = []
        with working(url, options, folder):
            ended = JobFilter(ALL_TENANTS, states=ENDED)
            while sum(store.count(ended).values()) < 500:
                time.sleep(0.1)
            for _ in range(options.times):
                mine.append(NewJob(new_id(), TASK, '{"n":1}', tenant="quiet"))
                put(store, mine[-1:])
                time.sleep(options.every)
            time.sleep(1.0)
            rows = store.get([job.id for job in mine], tenant="quiet")
            left = sum(store.count(JobFilter(ALL_TENANTS, states=frozenset({JobState.PENDING}))).values())
            assert left, "the noisy tenant had too few jobs: the runner was idle at the end"
        return [
            None if row.started_at is None else (row.started_at - row.created_at).total_seconds()
            for row in rows
        ]
    finally:
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", metavar="URL", help="server to use instead of a private one")
    parser.add_argument("--stores", default="postgres,sqlite")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--every", type=float, default=0.5)
    parser.add_argument("--ms", type=float, default=20.0)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server: Server | None = None
        for name in options.stores.split(","):
            for case in options.cases.split(","):
                if name == "sqlite":
                    seconds_waited = waits(f"sqlite:///{folder}/{case}.db", case, options, folder)
                else:
                    if server is None:
                        server = Server(
                            options.postgres
                            or stack.enter_context(running_postgres(fsync=True)).url("postgres")
                        )
                        stack.callback(server.close)
                    database = Database(server, "bench_fairness")
                    database.fresh()
                    seconds_waited = waits(database.url, case, options, folder)
                    database.drop()
                begun = [seconds for seconds in seconds_waited if seconds is not None]
                middle = f"{median(begun):.3f}" if begun else "-"
                worst = f"{max(begun):.3f}" if begun else "-"
                print(
                    f"{name} {case}: {len(begun)} of {len(seconds_waited)} jobs of the quiet tenant started; "
                    f"median wait {middle} s, worst {worst} s"
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main()
