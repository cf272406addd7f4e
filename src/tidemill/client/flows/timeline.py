"""The timeline of a flow or batch, read from its jobs and their executions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from tidemill.domain.flow_timeline import TimelineRow, has_paused, last_starts, timeline_of
from tidemill.domain.job import JobRow
from tidemill.stores.base import Store


def read_timeline(
    store: Store, jobs: Sequence[JobRow], tenant: str, now: datetime, limit: int
) -> list[TimelineRow]:
    """The jobs that have begun; the executions say when those began that wait for a review or a retry."""
    paused = list(islice((job.id for job in jobs if has_paused(job)), limit))
    starts = last_starts(store.executions(paused, tenant=tenant)) if paused else {}
    return timeline_of(jobs, now, limit, starts)
