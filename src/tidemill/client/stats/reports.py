"""Result types of ``app.stats``: plain data, with averages and ages computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from tidemill.domain.states import JobState

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Report(Generic[Row]):
    """The rows of an answer.

    For a window, ``since_at`` is its start: a full minute, or for longer windows a full quarter hour, hour or day. Only
    ``errors`` may be ``sampled``: it groups the latest failures, and then is complete only from ``since_at`` on.
    ``missing`` names the shards that did not answer, and whose rows are not counted.
    """

    at: datetime
    rows: list[Row]
    since_at: datetime | None = None
    sampled: bool = False
    missing: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class QueueDepthStep:
    """The highest depth of one queue within one step."""

    queue: str
    at: datetime
    pending: int
    scheduled: int
    oldest: timedelta


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Jobs waiting in a queue: ``pending`` for a worker, ``late`` for their promotion although they are due."""

    queue: str
    depth: int
    pending: int
    late: int
    oldest_at: datetime | None
    age: timedelta | None


@dataclass(frozen=True, slots=True)
class ActiveWorker:
    """A worker that is alive, holds jobs, or ended some within the window."""

    worker: UUID
    name: str | None
    host: str | None
    liveness: str  #: alive, late or gone
    slots: int
    claimed: int
    running: int
    ended: int
    failed: int
    last_claim_at: datetime | None  #: of the jobs it holds
    beat_at: datetime | None


@dataclass(frozen=True, slots=True)
class HeldJobReport:
    """A held job, the time it has been held, and the time since its worker's last heartbeat."""

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
    quiet_for: timedelta  #: since it reported progress, started, or was claimed
    timeout: timedelta | None
    over: timedelta | None  #: time past its timeout
    silent_for: timedelta | None  #: since its worker's last heartbeat; None for an unknown worker


@dataclass(frozen=True, slots=True)
class TaskLag:
    """Delay between due time and start of a task's jobs."""

    task: str
    jobs: int
    lag: timedelta
    longest: timedelta


@dataclass(frozen=True, slots=True)
class TaskFailures:
    """Number of failures of a task, and of affected tenants."""

    task: str
    failures: int
    tenants: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class WorkerPerformance:
    """Jobs that a worker ended, and their run times."""

    worker: UUID
    name: str | None
    total: int
    completed: int
    failed: int
    duration: timedelta | None
    longest: timedelta


@dataclass(frozen=True, slots=True)
class TaskRetries:
    """Number of attempts that a task's jobs take."""

    task: str
    jobs: int
    retried: int
    attempts: float
    most: int


@dataclass(frozen=True, slots=True)
class StatusCount:
    """Number of jobs in a state."""

    status: JobState
    jobs: int


@dataclass(frozen=True, slots=True)
class TaskDuration:
    """Run times of a task."""

    task: str
    jobs: int
    duration: timedelta
    longest: timedelta


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """Outcomes and run times of a tenant's jobs."""

    tenant: str
    jobs: int
    completed: int
    failed: int
    failure_rate: float
    duration: timedelta | None
    run_time: timedelta  #: the sum over all jobs that ran


@dataclass(frozen=True, slots=True)
class ThroughputStep:
    """Jobs that ended in one step, with percentiles of run time and lag.

    A percentile is the average of the jobs in the bucket that contains it; buckets double in length.
    """

    at: datetime
    total: int
    completed: int
    failed: int
    cancelled: int
    duration_p50: timedelta | None
    duration_p95: timedelta | None
    lag_p50: timedelta | None
    lag_p95: timedelta | None


RECENT = 5
"""The pace "now" is that of this number of full minutes."""


class Pace(NamedTuple):
    """Ended jobs a minute, the share of failed ones, and the 95th percentiles in seconds; None without jobs."""

    per_minute: float | None
    failure_rate: float | None
    run_p95: float | None
    wait_p95: float | None


def pace_of(minutes: Sequence[ThroughputStep], last: float = 1.0) -> Pace:
    """Return the pace over these minutes, of the last of which only a part has passed.

    A percentile is the mean of the minutes', weighted by their jobs.
    """
    judged = sum(minute.completed + minute.failed for minute in minutes)
    return Pace(
        sum(minute.total for minute in minutes) / (len(minutes) - 1 + last) if minutes else None,
        sum(minute.failed for minute in minutes) / judged if judged else None,
        _weighted([(minute.duration_p95, minute.total) for minute in minutes]),
        _weighted([(minute.lag_p95, minute.total) for minute in minutes]),
    )


def _weighted(values: Sequence[tuple[timedelta | None, int]]) -> float | None:
    measured = [(value.total_seconds(), number) for value, number in values if value is not None]
    jobs = sum(number for _, number in measured)
    return sum(seconds * number for seconds, number in measured) / jobs if jobs else None


@dataclass(frozen=True, slots=True)
class GroupThroughput:
    """Ended and failed jobs of one task, queue or tenant, per step."""

    name: str
    total: list[int]
    failed: list[int]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that has exhausted its attempts or its allowed crashes."""

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
    """A lease, its holder, and the results of its duties."""

    lease: str
    holder: UUID | None
    holder_name: str | None
    term: int
    held_for: timedelta | None
    silent_for: timedelta | None
    idle_for: timedelta | None  #: since one of its duties last ran
    items: int
    errors: int


@dataclass(frozen=True, slots=True)
class PolicyArchival:
    """Totals of one archive policy over all its runs."""

    policy: str
    tier: str
    archived: int
    verified: int  #: copies that were read back and matched
    failed: int  #: copies that did not match; their jobs stayed
    changed: int  #: jobs that were reopened during a run; they stayed
    bytes: int
    age: timedelta | None  #: average time between the jobs' end and their archiving
    runs: int
    duration: timedelta | None  #: average of a run
    errors: int  #: runs that ended with a store error
    last_at: datetime | None


@dataclass(frozen=True, slots=True)
class Health:
    """Counts that should be zero, or near it."""

    at: datetime
    orphans: int
    overdue: int
    stuck: int
    late: int  #: due, and not yet promoted
    dead_letters: int
    failed: int  #: within the window
    silent_workers: int  #: half of their lease has passed without a heartbeat
    at_most: int  #: upper bound up to which orphans, overdue and stuck jobs are counted
    missing: tuple[str, ...] = ()  #: shards that did not answer


@dataclass(frozen=True, slots=True)
class Overview:
    """One summary: waiting and running jobs, workers, and jobs that ended within the window."""

    at: datetime
    since_at: datetime
    counts: dict[str, int]
    depth: int
    oldest_age: timedelta | None
    workers: int
    slots: int
    ended: int
    completed_per_minute: float  #: in the last full minute, for any window
    failed_per_minute: float  #: in the last full minute, for any window
    success_rate: float | None  #: share of completed jobs among completed and failed ones
    duration: timedelta | None
    lag: timedelta | None
    retried: int
    definitions: int  #: enabled
    disabled_definitions: int
    schedules: int  #: enabled
    disabled_schedules: int  #: paused
    missing: tuple[str, ...] = ()  #: shards that did not answer


def document(value: Any) -> Any:
    """Convert an answer to plain data: instants as ISO texts, durations as seconds, names as in Python."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: document(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): document(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [document(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    return value.value if isinstance(value, Enum) else value
