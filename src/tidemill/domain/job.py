"""The values of a job: requests, claims, views and writes.

All values are immutable. Instants are aware UTC, durations are ``timedelta``, payloads are JSON text that stores do not parse.
``NewJob``, ``Claim`` and ``Finish`` are tuples because tens of thousands of them are created per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tidemill.domain.record import Keep
from tidemill.domain.states import HELD, RELEASED, ExecutionState, JobState, allowed
from tidemill.errors import BadFilter, IllegalTransition

if TYPE_CHECKING:
    from tidemill.domain.graph import Additions
    from tidemill.domain.records import AuditEntry

DEFAULT_TENANT = "default"
DEFAULT_QUEUE = "default"
DEFAULT_TIMEOUT = timedelta(seconds=3600)
DEFAULT_MAX_ATTEMPTS = 4
CHANGEABLE = frozenset({JobState.PENDING, JobState.SCHEDULED})
"""The states in which a job's queue and priority can be changed."""
LOWEST_PRIORITY, HIGHEST_PRIORITY = -100, 100


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """A user's exception as data; the exception object is never reconstructed."""

    type: str
    message: str
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Details:
    """Properties of a job that a claim does not need: written once, read by operators and handlers."""

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
    flow_id: UUID | None = None  #: the flow that the job is a node of
    node: str | None = None  #: its name in the flow
    position: int | None = None  #: its place among the members of a map or batch
    group_id: UUID | None = None  #: the group that counts its end, in this shard of the group's join
    group_shard: int | None = None
    may_fail: bool = False  #: its failure does not fail the group


NO_DETAILS = Details()


@dataclass(frozen=True, slots=True)
class UniqueHold:
    """A unique key that a job holds until it is claimed or until it ends, and at least for ``window`` after enqueue."""

    key: str
    until_claimed: bool = False
    window: timedelta | None = None


class NewJob(NamedTuple):
    """A request to run a task once. ``run_at`` is an instant; ``delay`` counts from the store's clock."""

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
    waiting: str | None = None  #: the reason why it starts in state ``waiting``; only a move releases it
    tied: bool = False  #: the store counts its end for jobs or groups that wait for it


class Enqueued(NamedTuple):
    """The result of one ``NewJob``: its own id if it was ``created``, otherwise the id of the job that holds its key."""

    id: UUID
    created: bool


class Claim(NamedTuple):
    """A job that a worker holds.

    Every later write must name the same ``token`` and ``worker``. The token rises by one with each claim of the job. A database
    that was restored to an earlier state may issue a token twice; the worker then distinguishes the two claims.
    """

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
    """The write that releases a held job; created by ``decide``, applied by a store."""

    state: JobState
    execution: ExecutionState
    reason: str | None = None
    delay: timedelta = timedelta(0)
    refund: bool = False  #: the attempt is refunded; ignored for a job that ends
    crashed: bool = False

    def __post_init__(self) -> None:
        _check(JobState.RUNNING, self.state)

    @property
    def on_cancel(self) -> JobState | None:
        """The state to write instead, for the reason of the request, if the row has a cancel request by then; None: the same.

        Only the store can see a request that arrives after the decision, so it receives the outcome for both cases.
        """
        return JobState.CANCELLED if self.state in RELEASED else None


class Finish(NamedTuple):
    """One held job and its transition. Ages are seconds before now by the worker's monotonic clock."""

    claim: Claim
    transition: Transition
    result: str | None = None
    error: ErrorInfo | None = None
    started_ago: float | None = None
    ended_ago: float = 0.0
    then: tuple[NewJob, ...] = ()  #: enqueued in the same transaction if the job completes
    #: Audit entries about jobs of ``then``; each is written if its job is.
    audit: tuple[tuple[UUID, AuditEntry], ...] = ()
    keep: Keep = Keep.ALL  #: the rows that stay; a tied job keeps at least its own row
    additions: Additions | None = (
        None  #: written in the same transaction if the job completes or is suspended
    )
    tied: bool = False  #: a hint that the end of the job is counted; without it, the store finds out later


@dataclass(frozen=True, slots=True)
class Move:
    """A transition, by an operator or a duty, of a job that no worker holds; valid only in one of the states ``expect``.

    A target that some expected state does not allow raises ``IllegalTransition`` before the store is called.
    """

    id: UUID
    tenant: str
    expect: frozenset[JobState]
    state: JobState
    reason: str | None = None
    delay: timedelta = timedelta(0)
    restart: bool = False  #: attempts and crashes count from zero again
    result: str | None = None
    lets_go: bool = False  #: an ending job releases its unique key immediately, even within its window
    event: str = ""  #: the name of the event that it is, if any, for the subscriptions that want it
    by: str | None = None  #: the actor, for the event

    def __post_init__(self) -> None:
        for state in self.expect - HELD:
            _check(state, self.state)
        if self.state in HELD:
            raise IllegalTransition("only a claim gives a job to a worker", after=self.state)

    @property
    def event_name(self) -> str:
        """The name of the event; every cancellation is one."""
        return self.event or ("job.cancelled" if self.state is JobState.CANCELLED else "")

    @property
    def event_data(self) -> dict[str, object]:
        """The data of the event."""
        return {"reason": self.reason, "by": self.by}


@dataclass(frozen=True, slots=True)
class Change:
    """Another queue or another priority for a job that is waiting to run, valid only while it is in one of ``expect``.

    A state in which a job is not waiting to run is ``IllegalTransition``, before any store is asked.
    """

    id: UUID
    tenant: str
    expect: frozenset[JobState]
    queue: str | None = None  #: None: as it is
    priority: int | None = None  #: None: as it is

    def __post_init__(self) -> None:
        for state in self.expect - CHANGEABLE:
            raise IllegalTransition(
                f"queue and priority of a job that is {state} cannot be changed", state=state
            )


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job: a fraction, steps, a message, or any of them."""

    fraction: float | None = None
    step: int | None = None
    total: int | None = None
    message: str | None = None
    stage: str | None = None
    at: datetime | None = None


LEVELS = ("debug", "info", "warning", "error")
"""Levels of a job's log lines, in rising order."""


def levels_from(level: str | None) -> frozenset[str] | None:
    """The levels that are at least this one; None, which stands for all of them, if none is given.

    >>> sorted(levels_from("warning"))
    ['error', 'warning']
    """
    if level is None:
        return None
    if level not in LEVELS:
        raise BadFilter(f"unknown level {level!r}; expected one of {', '.join(LEVELS)}", level=level)
    return frozenset(LEVELS[LEVELS.index(level) :])


class ProgressReport(NamedTuple):
    """A fenced progress write."""

    id: UUID
    token: int
    worker: UUID | None
    progress: Progress


@dataclass(frozen=True, slots=True)
class Execution:
    """One attempt at a job. ``number`` is its lease token, which counts every claim, refunded or not."""

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

    @property
    def duration(self) -> timedelta | None:
        """How long it ran; None if it did not start or has not ended."""
        if self.started_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.started_at


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One log line of a job."""

    job_id: UUID
    number: int
    at: datetime
    message: str
    level: str = "info"
    stage: str | None = None
    details: Mapping[str, object] | None = None
    duration: timedelta | None = None
    #: The worker that holds the job: part of the fence, not of the stored line.
    worker: UUID | None = field(default=None, compare=False)


class Checkpoint(NamedTuple):
    """A named value from which a job resumes after a restart; a later value of the same name replaces it."""

    job_id: UUID
    number: int
    worker: UUID | None
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """The complete record of one job, in any state."""

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
    #: When it left the live tables; None for a live job. Live tables do not store it.
    archived_at: datetime | None = None
    #: The archive tier of an archived job; None for a live job.
    tier: str | None = None

    @property
    def duration(self) -> timedelta | None:
        """From the start of the last execution to the end of the job; None before the end, and if no execution ran."""
        if self.started_at is None or self.finished_at is None:
            return None
        return self.finished_at - self.started_at


def hidden_payload(job: JobRow) -> JobRow:
    """A job without its arguments, results, metadata and messages: only their names remain."""
    return replace(
        job,
        args=_HIDDEN_OBJECT,
        result=None if job.result is None else _HIDDEN_VALUE,
        error=None if job.error is None else ErrorInfo(job.error.type, "***"),
        # The reason of a failure contains the message of the error.
        reason=job.reason if job.error is None else job.error.type,
        unique_key=None,
        limits=(),
        details=replace(
            job.details,
            metadata=dict.fromkeys(job.details.metadata, "***"),
            headers={},
            options={},
        ),
    )


def hidden_error(execution: Execution) -> Execution:
    """An attempt without the message of its error."""
    if execution.error is None:
        return execution
    return replace(execution, error=ErrorInfo(execution.error.type, "***"), reason=execution.error.type)


_HIDDEN_OBJECT, _HIDDEN_VALUE = '{"***":"***"}', '"***"'


def job_of(claim: Claim, details: Details = NO_DETAILS, started_at: datetime | None = None) -> JobRow:
    """A held job as a ``JobRow``, built without a store call."""
    return JobRow(
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
