"""The values that travel: what is asked (``NewJob``), held (``Claim``), shown (``Job``) and written down about it.

All are immutable. Instants are aware UTC, durations are ``timedelta``, payloads are JSON text that no store looks into.
``NewJob``, ``Claim`` and ``Finish`` are tuples because tens of thousands of them are made a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.states import HELD, ExecutionState, JobState, allowed
from tidemill.errors import IllegalTransition

DEFAULT_TENANT = "default"
DEFAULT_QUEUE = "default"
DEFAULT_TIMEOUT = timedelta(seconds=3600)
DEFAULT_MAX_ATTEMPTS = 4
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """A user's exception as data; it is never rebuilt."""

    type: str
    message: str
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Details:
    """What a job was asked with that no claim needs: written once, looked up by operators and handlers."""

    correlation_id: str | None = None
    parent_id: UUID | None = None
    reference: tuple[str, str] | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    definition_id: UUID | None = None
    definition_version: int | None = None
    schedule_id: UUID | None = None
    fire_at: datetime | None = None


NO_DETAILS = Details()


@dataclass(frozen=True, slots=True)
class UniqueHold:
    """A unique key a job holds: until it is claimed or until it ends, and in any case for ``window`` after enqueue."""

    key: str
    until_claimed: bool = False
    window: timedelta | None = None


class NewJob(NamedTuple):
    """A request to run a task once. ``run_at`` is an instant, ``delay`` counts from the store's own clock."""

    id: UUID
    task: str
    args: str = "{}"
    tenant: str = DEFAULT_TENANT
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = DEFAULT_TIMEOUT
    run_at: datetime | None = None
    delay: timedelta | None = None
    expires_at: datetime | None = None
    unique: UniqueHold | None = None
    limits: tuple[str, ...] = ()
    details: Details = NO_DETAILS
    waiting: str | None = None  #: why it waits from the beginning; only a move brings it on


class Enqueued(NamedTuple):
    """What became of one ``NewJob``: its own id if it was ``created``, else the id of the job that holds its key."""

    id: UUID
    created: bool


class Claim(NamedTuple):
    """A job in a worker's hands. ``token`` fences every later write: it rises by one with each claim of the job."""

    id: UUID
    task: str
    queue: str
    tenant: str
    priority: int
    attempt: int
    max_attempts: int
    crashes: int
    token: int
    run_at: datetime
    created_at: datetime
    expires_at: datetime | None
    timeout: timedelta | None
    args: str
    unique_key: str | None
    limits: tuple[str, ...] | None
    detailed: bool
    seq: int | None
    state: JobState = JobState.RUNNING
    cancel_reason: str | None = None
    worker: UUID | None = None


def _check(before: JobState, after: JobState) -> None:
    if not allowed(before, after):
        raise IllegalTransition(f"a job does not go from {before} to {after}", before=before, after=after)


@dataclass(frozen=True, slots=True)
class Transition:
    """What to write when a job leaves a worker's hands; made by ``decide``, carried out by a store."""

    state: JobState
    execution: ExecutionState
    reason: str | None = None
    delay: timedelta = timedelta(0)
    refund: bool = False  #: the attempt is given back; means nothing for a job that ends
    crashed: bool = False

    def __post_init__(self) -> None:
        _check(JobState.RUNNING, self.state)


class Finish(NamedTuple):
    """One held job and how it ends. Ages are seconds before now, measured by the worker's own monotonic clock."""

    claim: Claim
    transition: Transition
    result: str | None = None
    error: ErrorInfo | None = None
    started_ago: float | None = None
    ended_ago: float = 0.0


@dataclass(frozen=True, slots=True)
class Move:
    """An operator's or a duty's transition of a job nobody holds, valid only while it is in one of ``expect``.

    A target that some expected state does not allow is ``IllegalTransition``, before any store is asked.
    """

    id: UUID
    tenant: str
    expect: frozenset[JobState]
    state: JobState
    reason: str | None = None
    delay: timedelta = timedelta(0)
    restart: bool = False  #: attempts and crashes count from zero again
    result: str | None = None
    lets_go: bool = False  #: where it ends, its unique key is free at once, window or not

    def __post_init__(self) -> None:
        for state in self.expect - HELD:
            _check(state, self.state)
        if self.state in HELD:
            raise IllegalTransition("only a claim gives a job to a worker", after=self.state)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has come: a fraction, steps, words, or any of them."""

    fraction: float | None = None
    step: int | None = None
    total: int | None = None
    message: str | None = None
    stage: str | None = None
    at: datetime | None = None


class Report(NamedTuple):
    """A progress write, fenced like every other."""

    id: UUID
    token: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class Execution:
    """One attempt at a job. ``number`` is its lease token: it counts every claim, refunded or not."""

    job_id: UUID
    number: int
    attempt: int
    state: ExecutionState
    worker: UUID | None
    claimed_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    error: ErrorInfo | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line a job wrote about itself."""

    job_id: UUID
    number: int
    at: datetime
    message: str
    level: str = "info"
    stage: str | None = None
    details: Mapping[str, object] | None = None
    duration: timedelta | None = None


class Checkpoint(NamedTuple):
    """Where a job would go on after a restart, under a name of its own choosing; the last value of a name stands."""

    job_id: UUID
    number: int
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Job:
    """All that is known of one job, wherever it is."""

    id: UUID
    task: str
    state: JobState
    tenant: str
    queue: str
    priority: int
    args: str
    attempt: int
    max_attempts: int
    crashes: int
    token: int
    run_at: datetime
    created_at: datetime
    expires_at: datetime | None = None
    timeout: timedelta | None = None
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: UUID | None = None
    result: str | None = None
    error: ErrorInfo | None = None
    reason: str | None = None
    cancel_reason: str | None = None
    progress: Progress | None = None
    unique_key: str | None = None
    limits: tuple[str, ...] = ()
    details: Details = NO_DETAILS


def job_of(claim: Claim, details: Details = NO_DETAILS, started_at: datetime | None = None) -> Job:
    """A held job as its own worker sees it, without asking the store."""
    return Job(
        id=claim.id,
        task=claim.task,
        state=claim.state,
        tenant=claim.tenant,
        queue=claim.queue,
        priority=claim.priority,
        args=claim.args,
        attempt=claim.attempt,
        max_attempts=claim.max_attempts,
        crashes=claim.crashes,
        token=claim.token,
        run_at=claim.run_at,
        created_at=claim.created_at,
        expires_at=claim.expires_at,
        timeout=claim.timeout,
        started_at=started_at,
        worker=claim.worker,
        cancel_reason=claim.cancel_reason,
        unique_key=claim.unique_key,
        limits=claim.limits or (),
        details=details,
    )
