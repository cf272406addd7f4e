"""What ``app.stats`` answers: one value per row, with averages and ages already made. Plain data, no questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Generic, TypeVar
from uuid import UUID

from tidemill.domain.states import JobState

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Report(Generic[Row]):
    """The rows of an answer. Over a window: ``since_at`` is where it begins; where there was more than is looked at, the
    answer is ``sampled``, and ``since_at`` is from where on it is whole.
    """

    at: datetime
    rows: list[Row]
    since_at: datetime | None = None
    sampled: bool = False

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """What waits in a queue: for a worker, and (``late``) for the duty that promotes what is due."""

    queue: str
    depth: int
    pending: int
    late: int
    oldest_at: datetime | None
    age: timedelta | None


@dataclass(frozen=True, slots=True)
class ActiveWorker:
    """A worker that is alive, holds jobs, or did so within the window."""

    worker: UUID
    name: str | None
    host: str | None
    liveness: str  #: alive, late or gone
    slots: int
    claimed: int
    running: int
    ended: int
    failed: int
    last_claim_at: datetime | None  #: of those it holds
    beat_at: datetime | None


@dataclass(frozen=True, slots=True)
class HeldJob:
    """A held job, for how long, and since when its worker is silent."""

    id: UUID
    task: str
    queue: str
    tenant: str
    status: JobState
    attempt: int
    worker: UUID
    worker_name: str | None
    started_at: datetime | None
    held_for: timedelta  #: since it started, or was claimed
    timeout: timedelta | None
    over: timedelta | None  #: past its timeout
    silent_for: timedelta | None  #: since its worker's last heartbeat; None: nobody knows the worker


@dataclass(frozen=True, slots=True)
class TaskLag:
    """How late jobs of a task started."""

    task: str
    jobs: int
    lag: timedelta
    longest: timedelta


@dataclass(frozen=True, slots=True)
class TaskFailures:
    """How often a task failed, and for how many tenants."""

    task: str
    failures: int
    tenants: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class WorkerPerformance:
    """What a worker did."""

    worker: UUID
    name: str | None
    total: int
    completed: int
    failed: int
    duration: timedelta | None
    longest: timedelta


@dataclass(frozen=True, slots=True)
class TaskRetries:
    """How many attempts a task takes."""

    task: str
    jobs: int
    retried: int
    attempts: float
    most: int


@dataclass(frozen=True, slots=True)
class StatusCount:
    """How many jobs are in a state."""

    status: JobState
    jobs: int


@dataclass(frozen=True, slots=True)
class TaskDuration:
    """How long a task takes."""

    task: str
    jobs: int
    duration: timedelta
    longest: timedelta


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """What a tenant's jobs came to."""

    tenant: str
    jobs: int
    completed: int
    failed: int
    failure_rate: float
    duration: timedelta | None


@dataclass(frozen=True, slots=True)
class ThroughputStep:
    """What ended in one step, and how long a sample of it took and had waited."""

    at: datetime
    total: int
    completed: int
    failed: int
    cancelled: int
    duration_p50: timedelta | None
    duration_p95: timedelta | None
    lag_p50: timedelta | None
    lag_p95: timedelta | None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job whose attempts, or crashes, are exhausted."""

    id: UUID
    task: str
    queue: str
    tenant: str
    attempts: int
    crashes: int
    finished_at: datetime | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Leader:
    """A lease, who holds it and since when, and what its duties came to."""

    lease: str
    holder: UUID | None
    holder_name: str | None
    term: int
    held_for: timedelta | None
    silent_for: timedelta | None
    idle_for: timedelta | None  #: since one of its duties was last done
    items: int
    errors: int


@dataclass(frozen=True, slots=True)
class PolicyArchival:
    """What one archive policy has moved so far, in all its runs."""

    policy: str
    tier: str
    archived: int
    verified: int  #: copies that were read back and found whole
    failed: int  #: copies that were not; their jobs stayed
    changed: int  #: jobs that were opened again meanwhile, and stayed
    bytes: int
    age: timedelta | None  #: how long ago those jobs had ended, on average
    runs: int
    duration: timedelta | None  #: of a run, on average
    errors: int  #: runs that the store ended
    last_at: datetime | None


@dataclass(frozen=True, slots=True)
class Health:
    """What should be nothing, or near it."""

    at: datetime
    orphans: int
    overdue: int
    stuck: int
    late: int  #: due, and not yet promoted
    dead_letters: int
    failed: int  #: within the window
    silent_workers: int  #: half of their lease has passed without a heartbeat
    at_most: int  #: orphans, overdue and stuck are counted up to here


@dataclass(frozen=True, slots=True)
class Overview:
    """One look: what waits and runs, who works, and what ended within the window."""

    at: datetime
    since_at: datetime
    sampled: bool
    counts: dict[str, int]
    depth: int
    oldest_age: timedelta | None
    workers: int
    slots: int
    ended: int
    completed_per_minute: float
    failed_per_minute: float
    success_rate: float | None  #: of what completed or failed
    duration: timedelta | None
    lag: timedelta | None
    retried: int


def document(value: Any) -> Any:
    """An answer as plain data: instants as ISO text, durations as seconds, names as they are in Python."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: document(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): document(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [document(each) for each in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    return value.value if isinstance(value, Enum) else value
