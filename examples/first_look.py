"""A first look: one job's whole life in a store, and what happens to a worker that comes back from the dead.

    python3 dev.py demo [URL]        a temporary SQLite file, or memory://, sqlite:///jobs.db, postgresql://…

Only the store is at work here. Every step below is one verb: one transaction on the database.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tidemill import ArchivePolicy, Store, open_store
from tidemill.domain.cluster import WORKER_EXPIRY, Worker
from tidemill.domain.decide import COMPLETED, DEFAULT_POLICY, decide
from tidemill.domain.filters import JobFilter, Sort
from tidemill.domain.job import Claim, ErrorInfo, Finish, NewJob, UniqueHold
from tidemill.domain.lanes import ClaimRequest, Watermarks
from tidemill.domain.outcome import Crashed, Failed
from tidemill.ids import new_id

TENANT = f"demo-{new_id().hex[-8:]}"
console = Console()


def show(store: Store, title: str) -> None:
    """The jobs of this demonstration, as an operator would see them."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("job", "task", "state", "attempt", "token", "reason or result"):
        table.add_column(column)
    for job in store.jobs(JobFilter(TENANT), sort=Sort.OLDEST).items:
        said = job.result or job.reason or ""
        table.add_row(
            job.id.hex[-6:], job.task, job.state, f"{job.attempt}/{job.max_attempts}", str(job.token), said
        )
    console.print(table)


def claim(store: Store, worker: Worker, now: datetime, limit: int = 10) -> list[Claim]:
    marks = Watermarks()
    marks.seen(lane for lane in store.lanes() if lane.tenant == TENANT)
    return store.claim(ClaimRequest(worker.id, marks.lanes(), limit), now=now)


def a_life(store: Store) -> None:
    """Enqueue, claim, fail, retry, crash, reclaim, fence, finish, archive."""
    now = datetime.now(UTC)
    unique = UniqueHold("report:2026-11")
    store.enqueue(
        [
            NewJob(new_id(), "send_email", '{"to": "ada"}', tenant=TENANT, priority=5),
            NewJob(new_id(), "resize_image", '{"id": 7}', tenant=TENANT),
            NewJob(new_id(), "monthly_report", tenant=TENANT, unique=unique),
            NewJob(new_id(), "remind_later", tenant=TENANT, delay=timedelta(minutes=10)),
        ],
        now=now,
    )
    (again,) = store.enqueue([NewJob(new_id(), "monthly_report", tenant=TENANT, unique=unique)], now=now)
    show(
        store, "Enqueued: one is delayed, and the report's twin was not let in" if not again.created else "?"
    )

    tidy = store.register(Worker(new_id(), "tidy"), lease=WORKER_EXPIRY, now=now)
    doomed = store.register(Worker(new_id(), "doomed"), lease=WORKER_EXPIRY, now=now)
    email, image, report = claim(store, doomed, now)
    failed = Failed(ErrorInfo("ConnectionError", "mail server said no"))
    store.finish(
        [
            Finish(email, decide(email, failed, DEFAULT_POLICY, now, 0.5), error=failed.error),
            Finish(report, COMPLETED, '{"pages": 12}'),
        ],
        now=now,
    )
    show(store, "One failed and will be retried, one is done, one is still with the worker 'doomed'")

    now += WORKER_EXPIRY + timedelta(seconds=1)
    store.register(tidy := Worker(new_id(), "tidy, restarted"), lease=WORKER_EXPIRY, now=now)
    store.declare_gone([(doomed.id, doomed.beats)], now=now)
    for orphan in (orphan for orphan in store.orphans(100) if orphan.tenant == TENANT):
        lost = Crashed(f"worker {doomed.name} fell silent")
        store.finish([Finish(orphan, decide(orphan, lost, DEFAULT_POLICY, now, 0.5))], now=now)
    store.promote(100, now=now)
    second = claim(store, tidy, now)
    zombie = store.finish([Finish(image, COMPLETED, '"from beyond the grave"')], now=now)
    show(store, f"'doomed' came back and tried to finish: {len(zombie)} write refused, its token is old")

    store.finish([Finish(held, COMPLETED, '"ok"', started_ago=0.2) for held in second], now=now)
    policy = ArchivePolicy("demo", max_age=timedelta(0))
    mine = [document for document in store.archivable(policy, now=now) if document.tenant == TENANT]
    store.put_archive(mine, now=now)
    copies = store.archived([document.id for document in mine], tenant=TENANT)
    gone = store.forget([copy for copy in copies if copy.sound])
    show(store, f"{len(gone)} jobs ended, were copied, read back, found sound and left for the archive")


def a_race(store: Store, jobs: int = 20_000) -> None:
    """How fast this store moves jobs that do nothing."""
    worker = store.register(Worker(new_id(), "racer"), lease=timedelta(hours=1)).id
    begun = time.perf_counter()
    for _ in track(range(jobs // 1_000), "enqueueing", console=console, transient=True):
        store.enqueue([NewJob(new_id(), "nothing", tenant=TENANT) for _ in range(1_000)])
    enqueued = time.perf_counter()
    marks, done = Watermarks(), 0
    held: list[Claim] = []
    marks.seen(lane for lane in store.lanes() if lane.tenant == TENANT)
    while done < jobs:
        step = store.step(
            [Finish(job, COMPLETED, "null") for job in held],
            ClaimRequest(worker, marks.lanes(), 500, ("nothing",)),
        )
        done += len(held)
        held = step.claims
        marks.claimed(held)
    ended = time.perf_counter()
    console.print(
        f"{jobs:,} jobs: enqueued at {jobs / (enqueued - begun):,.0f}/s, claimed and finished at "
        f"{jobs / (ended - enqueued):,.0f}/s, each one durable, its result and history kept."
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tidemill-") as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{Path(folder) / 'jobs.db'}"
        store = open_store(url, migrate=True)
        try:
            console.print(f"store: {store.url}\n", style="dim", highlight=False, soft_wrap=True)
            a_life(store)
            a_race(store)
        finally:
            store.close()


if __name__ == "__main__":
    main()
