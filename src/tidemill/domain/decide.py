"""THE rule book: given a held job and what happened to it, what shall be written. Pure; stores only carry it out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from tidemill.domain.bounds import LONGEST
from tidemill.domain.job import Claim, Details, Job, Move, Transition
from tidemill.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    Outcome,
    Released,
    Review,
    Snoozed,
    Succeeded,
    Suspended,
    TimedOut,
)
from tidemill.domain.retry import DEFAULT_RETRY, RetryPolicy, policy_from_data
from tidemill.domain.states import ENDED, TRANSITIONS, ExecutionState, JobState
from tidemill.errors import IllegalTransition

DEFAULT_CRASH_CAP = 3
_NOW = timedelta(0)
_S, _E = JobState, ExecutionState

COMPLETED = Transition(_S.COMPLETED, _E.SUCCEEDED)
"""The happy end, one object for all of them."""


class OrphanRule(StrEnum):
    """What becomes of a job whose worker died."""

    REQUEUE = "requeue"
    FAIL = "fail"
    REVIEW = "review"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a task's jobs react to trouble."""

    retry: RetryPolicy = DEFAULT_RETRY
    crash_cap: int = DEFAULT_CRASH_CAP
    orphans: OrphanRule = OrphanRule.REQUEUE


DEFAULT_POLICY = Policy()


def stored_policy(policy: Policy, details: Details) -> Policy:
    """A task's policy with what was stored with the job itself, which wins; what cannot be read is left aside."""
    retry, orphans = details.options.get("retry"), details.options.get("orphans")
    if isinstance(retry, Mapping):
        policy = replace(policy, retry=policy_from_data(retry))
    if orphans in set(OrphanRule):
        policy = replace(policy, orphans=OrphanRule(str(orphans)))
    return policy


def decide(claim: Claim, outcome: Outcome, policy: Policy, now: datetime, jitter: float) -> Transition:
    """What to write for a held job. ``jitter`` in [0, 1) is drawn by the caller; ``now`` only judges expiry."""
    match outcome:
        case Succeeded():
            return COMPLETED
        case Cancelled(reason):
            return Transition(_S.CANCELLED, _E.CANCELLED, reason or claim.cancel_reason or "cancelled")
        case Review(reason):
            if claim.cancel_reason is not None:
                return Transition(_S.CANCELLED, _E.REVIEW, claim.cancel_reason)
            return Transition(_S.REVIEW_NEEDED, _E.REVIEW, reason)
        case Failed():
            return _failed(claim, outcome, policy, now, jitter)
        case TimedOut(limit):
            why = f"exceeded timeout of {limit.total_seconds():g} seconds"
            return _again(
                claim, _E.TIMED_OUT, _S.TIMED_OUT, policy.retry.delay(claim.attempt, jitter), why, now
            )
        case Crashed(reason):
            return _crashed(claim, reason, policy, now)
        case Released(reason):
            return _put_off(claim, _E.RELEASED, _NOW, reason, now)
        case Snoozed(delay, reason):
            return _put_off(claim, _E.RELEASED, delay, reason or "snoozed", now)
        case Suspended(reason, delay):
            if claim.cancel_reason is not None:
                return Transition(_S.CANCELLED, _E.SUSPENDED, claim.cancel_reason)
            return Transition(_S.WAITING, _E.SUSPENDED, reason, _within(delay or _NOW), refund=True)
        case _:
            assert_never(outcome)


def _failed(claim: Claim, outcome: Failed, policy: Policy, now: datetime, jitter: float) -> Transition:
    why = f"{outcome.error.type}: {outcome.error.message}"
    if outcome.permanent or outcome.retryable is False or claim.max_attempts <= 1:
        return Transition(_S.FAILED, _E.FAILED, why)
    delay = (
        outcome.retry_after if outcome.retry_after is not None else policy.retry.delay(claim.attempt, jitter)
    )
    return _again(claim, _E.FAILED, _S.DEAD_LETTERED, delay, why, now)


def _crashed(claim: Claim, reason: str, policy: Policy, now: datetime) -> Transition:
    if claim.state is _S.CLAIMED and claim.crashes:
        # A suspect's start is written before it begins: this one only waited, and is charged nothing. Of others nobody knows.
        return _put_off(claim, _E.RELEASED, _NOW, reason, now)
    if claim.cancel_reason is not None:
        return Transition(_S.CANCELLED, _E.CRASHED, claim.cancel_reason, crashed=True)
    if policy.orphans is OrphanRule.REVIEW:
        return Transition(_S.REVIEW_NEEDED, _E.CRASHED, reason, crashed=True)
    if policy.orphans is OrphanRule.FAIL or claim.max_attempts <= 1:
        return Transition(_S.FAILED, _E.CRASHED, reason, crashed=True)
    if claim.crashes + 1 >= policy.crash_cap:
        return Transition(_S.DEAD_LETTERED, _E.CRASHED, f"crash_loop: {reason}", crashed=True)
    again = _again(claim, _E.CRASHED, _S.DEAD_LETTERED, _NOW, reason, now)
    return Transition(again.state, again.execution, again.reason, again.delay, crashed=True)


def _again(
    claim: Claim, execution: ExecutionState, last: JobState, delay: timedelta, why: str, now: datetime
) -> Transition:
    """Another attempt if one is left and the job has not expired by then; ``last`` is the end otherwise."""
    if claim.attempt >= claim.max_attempts:
        return Transition(last, execution, why)
    return _back(claim, execution, delay, why, now, refund=False)


def _put_off(
    claim: Claim, execution: ExecutionState, delay: timedelta, why: str, now: datetime
) -> Transition:
    return _back(claim, execution, delay, why, now, refund=True)


def _back(
    claim: Claim, execution: ExecutionState, delay: timedelta, why: str, now: datetime, *, refund: bool
) -> Transition:
    if claim.cancel_reason is not None:
        return Transition(_S.CANCELLED, execution, claim.cancel_reason)
    delay = _within(delay)
    if claim.expires_at is not None and claim.expires_at <= now + delay:
        return Transition(_S.CANCELLED, execution, "expired")
    return Transition(_S.SCHEDULED if delay > _NOW else _S.PENDING, execution, why, delay, refund=refund)


def _within(delay: timedelta) -> timedelta:
    return min(max(delay, _NOW), LONGEST)


class Action(StrEnum):
    """What a person or a duty may do with a job nobody holds."""

    CANCEL = "cancel"
    RETRY = "retry"
    APPROVE = "approve"
    REJECT = "reject"
    RERUN = "rerun"
    EXPIRE = "expire"
    WAKE = "wake"
    RUN_NOW = "run_now"


_ACTIONS: dict[Action, tuple[frozenset[JobState], JobState]] = {
    Action.CANCEL: (frozenset({_S.SCHEDULED, _S.PENDING, _S.WAITING, _S.REVIEW_NEEDED}), _S.CANCELLED),
    Action.EXPIRE: (frozenset({_S.SCHEDULED, _S.PENDING, _S.WAITING}), _S.CANCELLED),
    Action.RETRY: (ENDED - {_S.COMPLETED}, _S.PENDING),
    Action.APPROVE: (frozenset({_S.REVIEW_NEEDED}), _S.COMPLETED),
    Action.REJECT: (frozenset({_S.REVIEW_NEEDED}), _S.FAILED),
    Action.RERUN: (frozenset({_S.REVIEW_NEEDED}), _S.PENDING),
    Action.WAKE: (frozenset({_S.WAITING}), _S.PENDING),
    Action.RUN_NOW: (frozenset({_S.SCHEDULED}), _S.PENDING),
}

assert all(after in TRANSITIONS[before] for befores, after in _ACTIONS.values() for before in befores)


def expected(action: Action) -> frozenset[JobState]:
    """The states from which an action is possible."""
    return _ACTIONS[action][0]


def move(job: Job, action: Action, reason: str | None = None) -> Move:
    """The write that carries an action out, or ``IllegalTransition`` naming the states that would allow it."""
    expect, target = _ACTIONS[action]
    if job.state not in expect:
        raise IllegalTransition(
            f"cannot {action} job {job.id}: it is {job.state}; that needs {_words(expect)}",
            id=job.id,
            state=job.state,
            action=action,
        )
    restart = action in (Action.RETRY, Action.RERUN)
    return Move(job.id, job.tenant, expect, target, reason or action.value, restart=restart)


def _words(states: Iterable[JobState]) -> str:
    return " or ".join(sorted(states))
