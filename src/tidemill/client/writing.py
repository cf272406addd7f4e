"""Jobs on their way into a store: written with whoever asked for them, and told to those who wait; and as they look meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tidemill.client.acting import enqueued_entries
from tidemill.domain.job import Enqueued, Job, NewJob
from tidemill.domain.states import JobState
from tidemill.ids import made_at
from tidemill.stores.base import Store


def put(store: Store, jobs: Sequence[NewJob], by: str | None = None) -> list[Enqueued]:
    """Write a batch, with who asked for it where that is wanted, and wake whoever waits for work."""
    written = write(store, jobs, by)
    wake(store, jobs)
    return written


def write(store: Store, jobs: Sequence[NewJob], by: str | None) -> list[Enqueued]:
    """Write a batch, with who asked for it where that is wanted."""
    if by is None:
        return store.enqueue(jobs)
    with store.transaction():
        written = store.enqueue(jobs)
        store.record(enqueued_entries(jobs, written, by))
    return written


def wake(store: Store, jobs: Sequence[NewJob]) -> None:
    """Wake whoever waits for such jobs."""
    # A job for later wakes no worker, but whoever promotes it must know by when.
    store.notify({"scheduled" if job.run_at or job.delay else f"ready:{job.queue}" for job in jobs})


def snapshot(job: NewJob, now: datetime) -> Job:
    """A job as it was asked for, without asking the store what it wrote."""
    created_at = min(made_at(job.id), now)
    run_at = job.run_at or created_at + (job.delay or timedelta(0))
    return Job(
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
