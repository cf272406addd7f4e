"""The rules that decide the next state of a held job from its outcome.

Stores only apply these decisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never
from uuid import UUID

from tidemill.domain.bounds import LONGEST
from tidemill.domain.job import Claim, Details, JobRow, Move, Transition
from tidemill.domain.large_values import read_reference
from tidemill.domain.misfits import delay_of, reason_of
from tidemill.domain.outcome import (
    Cancelled,
    Crashed,
    Failed,
    Misfit,
    Outcome,
    Released,
    ReviewRequested,
    Snoozed,
    Succeeded,
    Suspended,
    TimedOut,
)
from tidemill.domain.retry import DEFAULT_RETRY, RetryPolicy, policy_from_data
from tidemill.domain.states import ENDED, TRANSITIONS, ExecutionState, JobState
from tidemill.errors import IllegalTransition

DEFAULT_CRASH_CAP = 3
IN_COMPANY = "; other jobs ran in the same process, so it is not charged"
"""Suffix of a crash reason when any of several jobs may have caused the crash."""

_NOW = timedelta(0)
_S, _E = JobState, ExecutionState

COMPLETED = Transition(_S.COMPLETED, _E.SUCCEEDED)
"""The transition of a successful job, shared to save allocations."""


class OrphanRule(StrEnum):
    """The rule for a job whose worker died."""

    REQUEUE = "requeue"
    FAIL = "fail"
    REVIEW = "review"


@dataclass(frozen=True, slots=True)
class Policy:
    """How a task's jobs react to failures and crashes."""

    retry: RetryPolicy = DEFAULT_RETRY
    crash_cap: int = DEFAULT_CRASH_CAP
    orphans: OrphanRule = OrphanRule.REQUEUE


DEFAULT_POLICY = Policy()


def stored_policy(policy: Policy, details: Details) -> Policy:
    """A task's policy, overridden by the options stored with the job; unreadable options are ignored."""
    retry, orphans = details.options.get("retry"), details.options.get("orphans")
    if isinstance(retry, Mapping):
        policy = replace(policy, retry=policy_from_data(retry))
    if orphans in set(OrphanRule):
        policy = replace(policy, orphans=OrphanRule(str(orphans)))
    return policy


def decide(claim: Claim, outcome: Outcome, policy: Policy, now: datetime, jitter: float) -> Transition:
    """The transition of a held job. The caller draws ``jitter`` in [0, 1); ``now`` is used only to judge expiry."""
    match outcome:
        case Succeeded(result):
            return completed(result)
        case Cancelled(reason):
            return Transition(_S.CANCELLED, _E.CANCELLED, reason or claim.cancel_reason or "cancelled")
        case ReviewRequested(reason):
            return _unless_cancelled(claim, Transition(_S.REVIEW_NEEDED, _E.REVIEW, reason))
        case Failed():
            return _failed(claim, outcome, policy, now, jitter)
        case TimedOut():
            return _timed_out(claim, outcome, policy, now, jitter)
        case Crashed():
            return _crashed(claim, outcome, policy, now)
        case Released(reason):
            return _put_off(claim, _E.RELEASED, _NOW, reason, now)
        case Snoozed(delay, reason):
            return _put_off(claim, _E.RELEASED, delay, reason or "snoozed", now)
        case Suspended(reason, delay):
            asleep = Transition(_S.WAITING, _E.SUSPENDED, reason, _within(delay or _NOW), refund=True)
            return _unless_cancelled(claim, asleep)
        case Misfit():
            return _misfit(claim, outcome, now)
        case _:
            assert_never(outcome)


def completed(result: str | None) -> Transition:
    """The transition of a successful job; the reason records that its result was too large to keep."""
    reference = read_reference(result)
    if reference is None or reference.refused is None:
        return COMPLETED
    why = f"completed, but its result of {reference.size:,} bytes was not kept: {reference.refused}"
    return Transition(_S.COMPLETED, _E.SUCCEEDED, why)


def _timed_out(claim: Claim, outcome: TimedOut, policy: Policy, now: datetime, jitter: float) -> Transition:
    why = f"exceeded timeout of {outcome.limit.total_seconds():g} seconds"
    if outcome.retryable is False:
        return Transition(_S.TIMED_OUT, _E.TIMED_OUT, why)
    return _again(claim, _E.TIMED_OUT, _S.TIMED_OUT, _delay(claim, outcome, policy, jitter), why, now)


def _delay(claim: Claim, outcome: Failed | TimedOut, policy: Policy, jitter: float) -> timedelta:
    """The delay before the next attempt: requested by the task, or computed by its policy."""
    if outcome.retry_after is not None:
        return outcome.retry_after
    return policy.retry.delay(claim.attempt, jitter)


def late_completion(timeout: timedelta, took: float) -> Transition:
    """The completion of a handler that returned after its timeout; the reason records the overrun."""
    over = took - timeout.total_seconds()
    why = f"ran {over:.3g} s past its timeout of {timeout.total_seconds():g} s"
    return Transition(_S.COMPLETED, _E.SUCCEEDED, why)


def _misfit(claim: Claim, outcome: Misfit, now: datetime) -> Transition:
    """Release the job for a worker with other code, until the deadline; no attempt is used."""
    until = (outcome.since or now) + _within(outcome.wait)
    if now >= until:
        return Transition(_S.FAILED, _E.FAILED, f"{outcome.error.type}: {outcome.error.message}")
    delay = _within(min(delay_of(outcome.times), until - now))
    waits = Transition(_S.WAITING, _E.RELEASED, reason_of(outcome.problem, until), delay, refund=True)
    return _unless_cancelled(claim, waits)


def _unless_cancelled(claim: Claim, transition: Transition) -> Transition:
    """The transition, or cancellation if it was requested."""
    if claim.cancel_reason is None:
        return transition
    return Transition(_S.CANCELLED, transition.execution, claim.cancel_reason)


def _failed(claim: Claim, outcome: Failed, policy: Policy, now: datetime, jitter: float) -> Transition:
    why = f"{outcome.error.type}: {outcome.error.message}"
    if outcome.permanent or outcome.retryable is False or claim.max_attempts <= 1:
        return Transition(_S.FAILED, _E.FAILED, why)
    return _again(claim, _E.FAILED, _S.DEAD_LETTERED, _delay(claim, outcome, policy, jitter), why, now)


def _crashed(claim: Claim, outcome: Crashed, policy: Policy, now: datetime) -> Transition:
    reason = outcome.reason
    if claim.state is _S.CLAIMED and claim.crashes:
        # A suspect's start is written before it runs, so this job only waited and is not charged. Other jobs may have started.
        return _put_off(claim, _E.RELEASED, _NOW, reason, now)
    if claim.cancel_reason is not None:
        return Transition(_S.CANCELLED, _E.CRASHED, claim.cancel_reason, crashed=True)
    if policy.orphans is OrphanRule.REVIEW:
        return Transition(_S.REVIEW_NEEDED, _E.CRASHED, reason, crashed=True)
    if policy.orphans is OrphanRule.FAIL or claim.max_attempts <= 1:
        return Transition(_S.FAILED, _E.CRASHED, reason, crashed=True)
    if not outcome.alone:
        # Any job in that process may have crashed it. The first crash only makes the job a suspect.
        back = _put_off(claim, _E.CRASHED, _NOW, f"{reason}{IN_COMPANY}", now)
        return replace(back, crashed=claim.crashes == 0)
    if crashes_alone(claim) >= policy.crash_cap:
        return Transition(_S.DEAD_LETTERED, _E.CRASHED, f"crash_loop: {reason}", crashed=True)
    again = _again(claim, _E.CRASHED, _S.DEAD_LETTERED, _NOW, reason, now)
    return replace(again, crashed=True)


def crashes_alone(claim: Claim) -> int:
    """An upper bound on the processes that this job crashed while it ran alone, including the latest crash.

    A crash alone uses an attempt and counts as a crash. A crash in company refunds the attempt, and counts only when it makes
    the job a suspect. So crashes alone exceed neither the crash count nor the attempts.
    """
    return min(claim.crashes + 1, claim.attempt)


def in_company(claims: Iterable[Claim]) -> frozenset[UUID]:
    """The jobs of a dead process that ran, or may have run, at the same time as another one.

    A suspect that is only ``claimed`` has not started. Any other ``claimed`` job may have: its start is written later.
    """
    begun = [claim.id for claim in claims if claim.state is _S.RUNNING or not claim.crashes]
    return frozenset(begun) if len(begun) > 1 else frozenset()


def _again(
    claim: Claim, execution: ExecutionState, last: JobState, delay: timedelta, why: str, now: datetime
) -> Transition:
    """Another attempt if one is left and the job does not expire before it; otherwise the state ``last``."""
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
    """An action of a person or a duty on a job that no worker holds."""

    CANCEL = "cancel"
    RETRY = "retry"
    APPROVE = "approve"
    REJECT = "reject"
    RERUN = "rerun"
    EXPIRE = "expire"
    WAKE = "wake"
    RUN_NOW = "run_now"
    RESCHEDULE = "reschedule"


_ACTIONS: dict[Action, tuple[frozenset[JobState], JobState]] = {
    Action.CANCEL: (frozenset({_S.SCHEDULED, _S.PENDING, _S.WAITING, _S.REVIEW_NEEDED}), _S.CANCELLED),
    Action.EXPIRE: (frozenset({_S.SCHEDULED, _S.PENDING, _S.WAITING}), _S.CANCELLED),
    Action.RETRY: (ENDED - {_S.COMPLETED}, _S.PENDING),
    Action.APPROVE: (frozenset({_S.REVIEW_NEEDED}), _S.COMPLETED),
    Action.REJECT: (frozenset({_S.REVIEW_NEEDED}), _S.FAILED),
    Action.RERUN: (frozenset({_S.REVIEW_NEEDED}), _S.PENDING),
    Action.WAKE: (frozenset({_S.WAITING}), _S.PENDING),
    Action.RUN_NOW: (frozenset({_S.SCHEDULED}), _S.PENDING),
    Action.RESCHEDULE: (frozenset({_S.SCHEDULED, _S.PENDING}), _S.SCHEDULED),
}

_EVENTS = {
    Action.CANCEL: "job.cancelled",
    Action.EXPIRE: "job.cancelled",
    Action.RETRY: "job.retried",
    Action.APPROVE: "job.approved",
    Action.REJECT: "job.rejected",
    Action.RERUN: "job.rerun",
    Action.WAKE: "job.woken",
    Action.RUN_NOW: "job.run_now",
    Action.RESCHEDULE: "job.rescheduled",
}

MOVE_EVENTS = frozenset(_EVENTS.values())
"""Events that a store records with the move itself."""

assert all(after in TRANSITIONS[before] for befores, after in _ACTIONS.values() for before in befores)


def expected(action: Action) -> frozenset[JobState]:
    """The states from which an action is possible."""
    return _ACTIONS[action][0]


def move(
    job: JobRow,
    action: Action,
    reason: str | None = None,
    delay: timedelta = _NOW,
    *,
    by: str | None = None,
) -> Move:
    """The write for an action. Raises ``IllegalTransition`` with the states that allow the action.

    ``delay`` is how long a rescheduled job waits; ``by`` is the actor.
    """
    expect, target = _ACTIONS[action]
    if job.state not in expect:
        raise IllegalTransition(
            f"cannot {action} job {job.id}: it is {job.state}; that needs {_words(expect)}",
            id=job.id,
            state=job.state,
            action=action,
        )
    restart = action in (Action.RETRY, Action.RERUN)
    return Move(
        job.id,
        job.tenant,
        expect,
        target,
        reason or action.value,
        _within(delay),
        restart=restart,
        event=_EVENTS[action],
        by=by,
    )


def _words(states: Iterable[JobState]) -> str:
    return " or ".join(sorted(states))
