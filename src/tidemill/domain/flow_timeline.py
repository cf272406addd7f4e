"""The timeline of a flow or batch: when its jobs began and ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.flow_states import node_label
from tidemill.domain.job import Execution, JobRow
from tidemill.domain.states import ENDED

ROWS = 200
"""Jobs of a timeline, unless more are asked for."""


class TimelineRow(NamedTuple):
    """One job: when its last execution began, and how long it took or has taken so far.

    A job that waits for a review, a retry or a signal has not ended: its time includes the wait.
    """

    node: str
    position: int | None
    id: UUID
    status: str
    attempt: int
    started_at: datetime
    finished_at: datetime | None  #: None until the job has ended
    seconds: float

    @property
    def label(self) -> str:
        """The name of the node, with its place in a map."""
        return label_of(self.node, self.position)


def label_of(node: str, position: int | None) -> str:
    """The name of a node, with its place in a map."""
    return node if position is None else f"{node} [{position}]"


def has_paused(job: JobRow) -> bool:
    """Whether the job waits after an execution, so that only its executions know when it began."""
    return job.started_at is None and job.token > 0 and job.worker is None and job.state not in ENDED


def last_starts(executions: Iterable[Execution]) -> dict[UUID, datetime]:
    """When the last execution of each job began."""
    starts: dict[UUID, datetime] = {}
    for execution in executions:
        if execution.started_at is not None:
            starts[execution.job_id] = max(
                execution.started_at, starts.get(execution.job_id, execution.started_at)
            )
    return starts


def timeline_of(
    jobs: Iterable[JobRow], now: datetime, limit: int = ROWS, starts: Mapping[UUID, datetime] | None = None
) -> list[TimelineRow]:
    """The jobs that have begun, in the order of their starts; ``starts`` are those of paused jobs."""
    known = starts or {}
    begun = [
        (started_at, job.id, job)
        for job in jobs
        if (started_at := job.started_at or known.get(job.id)) is not None
    ]
    begun.sort(key=lambda item: item[:2])
    return [
        TimelineRow(
            job.details.node or job.task,
            job.details.position,
            job.id,
            node_label(job),
            job.attempt,
            started_at,
            job.finished_at,
            max(((job.finished_at or now) - started_at).total_seconds(), 0.0),
        )
        for started_at, _, job in begun[:limit]
    ]
