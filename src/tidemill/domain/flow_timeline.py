"""The timeline of a flow or batch: when its jobs began and ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.flow_states import node_label
from tidemill.domain.job import JobRow

ROWS = 200
"""Jobs of a timeline, unless more are asked for."""


class TimelineRow(NamedTuple):
    """One job: its last execution, and how long that took or has taken so far."""

    node: str
    position: int | None
    id: UUID
    status: str
    attempt: int
    started_at: datetime
    finished_at: datetime | None  #: None while it runs
    seconds: float

    @property
    def label(self) -> str:
        """The name of the node, with its place in a map."""
        return self.node if self.position is None else f"{self.node} [{self.position}]"


def timeline_of(jobs: Iterable[JobRow], now: datetime, limit: int = ROWS) -> list[TimelineRow]:
    """The jobs that have begun, in the order of their starts."""
    begun = [(job.started_at, job.id, job) for job in jobs if job.started_at is not None]
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
