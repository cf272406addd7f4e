"""The writes that all routes share, and the snapshot of a job that was just written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.client.access import enqueued_entries
from tidemill.domain.job import Enqueued, JobRow, NewJob
from tidemill.domain.states import JobState
from tidemill.errors import JobExists
from tidemill.ids import made_at
from tidemill.stores import large_values
from tidemill.stores.base import Store


def put(store: Store, jobs: Sequence[NewJob], by: str | None = None) -> list[Enqueued]:
    """Store a batch, with an audit record if ``by`` is given, and wake the workers."""
    written = large_values.enqueue(store, jobs) if by is None else write(store, jobs, by)
    wake(store, jobs)
    return written


def write(store: Store, jobs: Sequence[NewJob], by: str | None) -> list[Enqueued]:
    """Store a batch, with an audit record if ``by`` is given."""
    if by is None:
        return large_values.enqueue(store, jobs)
    with store.transaction():
        written = large_values.enqueue(store, jobs)
        store.record(enqueued_entries(jobs, written, by))
    return written


def insert_new(
    store: Store, jobs: Sequence[NewJob], taken: Callable[[NewJob, UUID], Exception], now: datetime | None
) -> list[Enqueued]:
    """Store jobs whose unique keys must be free; ``taken`` makes the error for a key that another job holds."""
    written = large_values.enqueue(store, jobs, now=now)
    for job, answer in zip(jobs, written, strict=True):
        if not answer.created:
            raise taken(job, answer.id)
    return written


def key_taken(job: NewJob, holder: UUID) -> JobExists:
    """Return the error for a unique key that another job holds."""
    return JobExists(f"job {holder} of task {job.task} holds the same unique key", id=holder, task=job.task)


def wake(store: Store, jobs: Sequence[NewJob]) -> None:
    """Notify the workers that wait for such jobs."""
    # A job for later wakes no worker, but the process that promotes scheduled jobs must learn its due time.
    store.notify({"scheduled" if job.run_at or job.delay else f"ready:{job.queue}" for job in jobs})


def snapshot(job: NewJob, now: datetime) -> JobRow:
    """Return a new job as requested, without reading it back from the store."""
    created_at = min(made_at(job.id), now)
    run_at = job.run_at or created_at + (job.delay or timedelta(0))
    return JobRow(
        id=job.id,
        task=job.task,
        state=JobState.SCHEDULED if run_at > now else JobState.PENDING,
        tenant=job.tenant,
        queue=job.queue,
        priority=job.priority,
        args=job.args,
        attempt=0,
        max_attempts=job.max_attempts,
        crashes=0,
        token=0,
        run_at=run_at,
        created_at=created_at,
        expires_at=job.expires_at,
        timeout=job.timeout,
        unique_key=job.unique.key if job.unique is not None else None,
        limits=job.limits,
        details=job.details,
    )
