"""The states of jobs and executions, and the one table of allowed transitions."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """Where a job is on its way."""

    SCHEDULED = "scheduled"  #: its time lies ahead: delayed, or waiting to be retried
    PENDING = "pending"  #: due, waiting for a worker
    CLAIMED = "claimed"  #: a worker holds it and has not started it
    RUNNING = "running"  #: its execution has begun
    WAITING = "waiting"  #: until something else has happened, such as the end of the job before it
    REVIEW_NEEDED = "review_needed"  #: a person has to decide
    COMPLETED = "completed"  #: succeeded, result stored
    FAILED = "failed"  #: ended by a permanent error, or no retry was allowed
    TIMED_OUT = "timed_out"  #: the last allowed execution ran over its time
    CANCELLED = "cancelled"  #: cancelled by a person, a program or expiry
    DEAD_LETTERED = "dead_lettered"  #: attempts or crashes are exhausted


class ExecutionState(StrEnum):
    """How one attempt at a job went."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    RELEASED = "released"  #: handed back; the attempt is refunded
    SUSPENDED = "suspended"
    REVIEW = "review"


_S = JobState

HELD = frozenset({_S.CLAIMED, _S.RUNNING})
"""States in which a worker holds the job and a lease token guards it."""

ENDED = frozenset({_S.COMPLETED, _S.FAILED, _S.TIMED_OUT, _S.CANCELLED, _S.DEAD_LETTERED})
"""States a job does not leave by itself; only an operator's retry reopens one."""

LIVE = frozenset(JobState) - ENDED

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _S.SCHEDULED: frozenset({_S.PENDING, _S.SCHEDULED, _S.CANCELLED}),
    _S.PENDING: frozenset({_S.CLAIMED, _S.RUNNING, _S.SCHEDULED, _S.CANCELLED}),
    _S.CLAIMED: frozenset(
        {_S.RUNNING, _S.PENDING, _S.SCHEDULED, _S.REVIEW_NEEDED, _S.FAILED, _S.CANCELLED, _S.DEAD_LETTERED}
    ),
    _S.RUNNING: frozenset(JobState) - {_S.CLAIMED, _S.RUNNING},
    _S.WAITING: frozenset({_S.PENDING, _S.SCHEDULED, _S.FAILED, _S.CANCELLED}),
    _S.REVIEW_NEEDED: frozenset({_S.PENDING, _S.COMPLETED, _S.FAILED, _S.CANCELLED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset({_S.PENDING}),
    _S.TIMED_OUT: frozenset({_S.PENDING}),
    _S.CANCELLED: frozenset({_S.PENDING}),
    _S.DEAD_LETTERED: frozenset({_S.PENDING}),
}
"""Every way a job may go. A transition that is not here is a defect, wherever it was written."""


def allowed(before: JobState, after: JobState) -> bool:
    """Whether a job may go from one state to the other.

    >>> allowed(JobState.PENDING, JobState.COMPLETED)
    False
    """
    return after in TRANSITIONS[before]
