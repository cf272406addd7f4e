"""The states of jobs and executions, and the table of allowed transitions."""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """The state of a job."""

    SCHEDULED = "scheduled"  #: due in the future: delayed, or waiting for a retry
    PENDING = "pending"  #: due, waiting for a worker
    CLAIMED = "claimed"  #: a worker holds it and has not started it
    RUNNING = "running"  #: its execution has started
    WAITING = "waiting"  #: until an event, such as the end of the job before it
    REVIEW_NEEDED = "review_needed"  #: a person must decide
    COMPLETED = "completed"  #: succeeded, result stored
    FAILED = "failed"  #: ended by a permanent error, or no retry was allowed
    TIMED_OUT = "timed_out"  #: the last allowed execution exceeded its timeout
    CANCELLED = "cancelled"  #: cancelled by a person, a program or expiry
    DEAD_LETTERED = "dead_lettered"  #: attempts or crashes are exhausted


class ExecutionState(StrEnum):
    """The result of one attempt at a job."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    CRASHED = "crashed"
    RELEASED = "released"  #: returned to the queue; the attempt is refunded
    SUSPENDED = "suspended"
    REVIEW = "review"


FAULTS = frozenset({ExecutionState.FAILED, ExecutionState.TIMED_OUT, ExecutionState.CRASHED})
"""Results of attempts that went wrong."""

_S = JobState

HELD = frozenset({_S.CLAIMED, _S.RUNNING})
"""States in which a worker holds the job and its lease token fences writes."""

ENDED = frozenset({_S.COMPLETED, _S.FAILED, _S.TIMED_OUT, _S.CANCELLED, _S.DEAD_LETTERED})
"""States a job does not leave by itself; only an operator's retry reopens one."""

LIVE = frozenset(JobState) - ENDED

RELEASED = frozenset({_S.PENDING, _S.SCHEDULED, _S.WAITING})
"""States of a job that runs again without the decision of a person."""

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    # To completed without an execution: an operator skips a node of a flow.
    _S.SCHEDULED: frozenset({_S.PENDING, _S.SCHEDULED, _S.COMPLETED, _S.CANCELLED}),
    _S.PENDING: frozenset({_S.CLAIMED, _S.RUNNING, _S.SCHEDULED, _S.COMPLETED, _S.CANCELLED}),
    _S.CLAIMED: frozenset(
        {_S.RUNNING, _S.PENDING, _S.SCHEDULED, _S.REVIEW_NEEDED, _S.FAILED, _S.CANCELLED, _S.DEAD_LETTERED}
    ),
    _S.RUNNING: frozenset(JobState) - {_S.CLAIMED, _S.RUNNING},
    _S.WAITING: frozenset({_S.PENDING, _S.SCHEDULED, _S.COMPLETED, _S.FAILED, _S.CANCELLED}),
    _S.REVIEW_NEEDED: frozenset({_S.PENDING, _S.COMPLETED, _S.FAILED, _S.CANCELLED}),
    # Only a retry of a flow runs completed nodes again, or lets ended ones wait again.
    _S.COMPLETED: frozenset({_S.PENDING, _S.WAITING}),
    _S.FAILED: frozenset({_S.PENDING, _S.WAITING}),
    _S.TIMED_OUT: frozenset({_S.PENDING, _S.WAITING}),
    _S.CANCELLED: frozenset({_S.PENDING, _S.WAITING}),
    _S.DEAD_LETTERED: frozenset({_S.PENDING, _S.WAITING}),
}
"""Every allowed transition. Any other one is a defect."""


def allowed(before: JobState, after: JobState) -> bool:
    """Whether a job may go from one state to the other.

    >>> allowed(JobState.COMPLETED, JobState.RUNNING)
    False
    """
    return after in TRANSITIONS[before]
