"""Property tests of every decision, and tests of operator actions."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.domain.strategies import (
    ID,
    NOW,
    a_claim,
    a_job,
    claims,
    failures,
    outcomes,
    policies,
    shares,
    waits,
    words,
)

from tidemill.domain.decide import (
    DEFAULT_POLICY,
    Action,
    OrphanRule,
    Policy,
    crashes_alone,
    decide,
    expected,
    in_company,
    move,
)
from tidemill.domain.job import Claim, Move
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
from tidemill.domain.states import ENDED, TRANSITIONS, ExecutionState, JobState
from tidemill.errors import IllegalTransition

S, E = JobState, ExecutionState
AGAIN = {S.PENDING, S.SCHEDULED}
EVEN_BEFORE_THE_START = (Failed, Cancelled, Crashed, Released, Snoozed)
failed_or_timed_out = failures | st.builds(TimedOut, waits)


def waited_as_a_suspect(claim: Claim) -> bool:
    """Return whether it had not begun when its worker died: a suspect's start is written before it begins."""
    return claim.state is JobState.CLAIMED and claim.crashes > 0


@given(claims(), outcomes, policies, shares)
def test_the_result_is_allowed_from_running(
    claim: Claim, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    assert decide(claim, outcome, policy, NOW, jitter).state in TRANSITIONS[S.RUNNING]


@given(claims(), outcomes.filter(lambda o: isinstance(o, EVEN_BEFORE_THE_START)), policies, shares)
def test_outcomes_before_the_start_are_allowed_from_claimed(
    claim: Claim, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    assert decide(claim, outcome, policy, NOW, jitter).state in TRANSITIONS[S.CLAIMED]


@given(claims(), outcomes, policies, shares)
def test_an_attempt_beyond_the_last_is_never_granted(
    claim: Claim, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    written = decide(claim, outcome, policy, NOW, jitter)
    if written.state in AGAIN and not written.refund:
        assert claim.attempt + 1 <= claim.max_attempts


@given(claims(), outcomes, policies, shares)
def test_a_job_with_a_cancel_request_does_not_come_back(
    claim: Claim, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    assume(claim.cancel_reason is not None)
    assert decide(claim, outcome, policy, NOW, jitter).state not in AGAIN | {S.WAITING}


@given(claims(), failed_or_timed_out | st.builds(Crashed, words), policies, shares)
def test_an_expired_job_is_not_retried(claim: Claim, outcome: Outcome, policy: Policy, jitter: float) -> None:
    written = decide(claim._replace(expires_at=NOW), outcome, policy, NOW, jitter)
    assert written.state in ENDED | {S.REVIEW_NEEDED}


@given(claims(), outcomes, policies, shares)
def test_a_job_never_comes_back_after_its_expiry(
    claim: Claim, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    written = decide(claim, outcome, policy, NOW, jitter)
    if written.state in AGAIN and claim.expires_at is not None:
        assert NOW + written.delay < claim.expires_at


@given(claims(), st.builds(Released, words) | st.builds(Snoozed, waits), policies, shares)
def test_a_released_or_snoozed_job_gets_its_attempt_refunded(
    claim: Claim, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    written = decide(claim._replace(cancel_reason=None, expires_at=None), outcome, policy, NOW, jitter)
    assert written.refund
    assert written.execution is E.RELEASED
    assert written.state in AGAIN


@given(claims(), outcomes, policies, shares)
def test_only_released_and_suspended_jobs_get_a_refund(
    claim: Claim, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    if decide(claim, outcome, policy, NOW, jitter).refund:
        assert (
            isinstance(outcome, Released | Snoozed | Suspended | Misfit)
            or waited_as_a_suspect(claim)
            or (isinstance(outcome, Crashed) and not outcome.alone)
        )


@given(claims(), outcomes, policies, shares)
def test_a_crash_counts_if_alone_or_if_it_makes_a_suspect(
    claim: Claim, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    written = decide(claim, outcome, policy, NOW, jitter)
    if not isinstance(outcome, Crashed) or waited_as_a_suspect(claim):
        assert not written.crashed
    elif outcome.alone or claim.crashes == 0 or written.state in ENDED | {S.REVIEW_NEEDED}:
        assert written.crashed or written.reason == "expired" or claim.cancel_reason is not None
    else:
        assert not written.crashed


@given(claims(), policies, shares)
def test_a_job_does_not_survive_more_crashes_alone_than_the_cap(
    claim: Claim, policy: Policy, jitter: float
) -> None:
    written = decide(claim, Crashed("gone"), policy, NOW, jitter)
    if written.state in AGAIN and not waited_as_a_suspect(claim):
        assert crashes_alone(claim) < policy.crash_cap
        assert policy.orphans is OrphanRule.REQUEUE


@given(claims(), policies, shares)
def test_a_crash_in_company_never_dead_letters_a_job(claim: Claim, policy: Policy, jitter: float) -> None:
    assert decide(claim, Crashed("gone", alone=False), policy, NOW, jitter).state is not S.DEAD_LETTERED


@given(st.lists(st.sampled_from(["alone", "company", "waited"]), max_size=40), st.integers(1, 6))
def test_a_crashing_job_ends_at_the_crash_cap(ends: list[str], cap: int) -> None:
    attempt = crashes = alone = 0
    for end in ends:
        suspect = crashes > 0
        claim = a_claim(
            attempt=attempt + 1,
            max_attempts=100,
            crashes=crashes,
            state=S.CLAIMED if suspect and end == "waited" else S.RUNNING,
        )
        written = decide(claim, Crashed("gone", alone=end == "alone"), Policy(crash_cap=cap), NOW, 0.0)
        alone += end == "alone"
        assert (written.state is S.DEAD_LETTERED) is (alone >= cap)
        if alone >= cap:
            return
        attempt, crashes = attempt + (not written.refund), crashes + written.crashed
        assert crashes <= alone + 1


@given(st.lists(claims(), max_size=6))
def test_jobs_are_in_company_if_another_may_have_begun(held: list[Claim]) -> None:
    held = [claim._replace(id=UUID(int=number)) for number, claim in enumerate(held)]
    begun = {claim.id for claim in held if not waited_as_a_suspect(claim)}
    assert in_company(held) == (begun if len(begun) > 1 else frozenset())


@given(claims(), outcomes, policies, shares)
def test_only_a_scheduled_job_has_a_delay(
    claim: Claim, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    written = decide(claim, outcome, policy, NOW, jitter)
    if written.state is S.SCHEDULED:
        assert written.delay > timedelta(0)
    elif written.state is not S.WAITING:
        assert written.delay == timedelta(0)


@given(claims(), outcomes, policies, shares)
def test_every_transition_but_success_has_a_reason(
    claim: Claim, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    written = decide(claim, outcome, policy, NOW, jitter)
    assert written.reason or isinstance(outcome, Succeeded)


@given(claims(), outcomes, policies, shares)
def test_the_execution_state_reflects_the_outcome(
    claim: Claim, outcome: Outcome, policy: Policy, jitter: float
) -> None:
    expected_states = {
        Succeeded: {E.SUCCEEDED},
        Failed: {E.FAILED},
        TimedOut: {E.TIMED_OUT},
        Cancelled: {E.CANCELLED},
        Crashed: {E.CRASHED},
        Released: {E.RELEASED},
        Snoozed: {E.RELEASED},
        Suspended: {E.SUSPENDED},
        ReviewRequested: {E.REVIEW},
        Misfit: {E.RELEASED, E.FAILED},
    }
    if isinstance(outcome, Crashed) and waited_as_a_suspect(claim):
        expected_states[Crashed] = {E.RELEASED}
    assert decide(claim, outcome, policy, NOW, jitter).execution in expected_states[type(outcome)]


@given(claims(), outcomes, policies, shares)
def test_a_decision_is_deterministic(claim: Claim, outcome: Outcome, policy: Policy, jitter: float) -> None:
    assert decide(claim, outcome, policy, NOW, jitter) == decide(claim, outcome, policy, NOW, jitter)


def test_a_job_with_a_cancel_request_is_not_reviewed() -> None:
    written = decide(a_claim(cancel_reason="stop"), ReviewRequested("look"), DEFAULT_POLICY, NOW, 0.0)
    assert written.state is S.CANCELLED


def test_orphans_are_reviewed_even_with_one_attempt() -> None:
    written = decide(a_claim(max_attempts=1), Crashed("gone"), Policy(orphans=OrphanRule.REVIEW), NOW, 0.0)
    assert written.state is S.REVIEW_NEEDED


def test_a_delay_beyond_the_calendar_expires_the_job() -> None:
    written = decide(a_claim(expires_at=NOW + timedelta(1)), Snoozed(timedelta.max), DEFAULT_POLICY, NOW, 0.0)
    assert written.reason == "expired"


def test_no_delay_is_negative() -> None:
    assert decide(a_claim(), Suspended("nap", timedelta(-1)), DEFAULT_POLICY, NOW, 0.0).delay == timedelta(0)


# ----------------------------------------------------------------------------------------- operator and duty actions

ENDED_BADLY = {S.FAILED, S.TIMED_OUT, S.CANCELLED, S.DEAD_LETTERED}
ACTIONS: dict[Action, tuple[set[JobState], JobState]] = {
    Action.CANCEL: ({S.SCHEDULED, S.PENDING, S.WAITING, S.REVIEW_NEEDED}, S.CANCELLED),
    Action.EXPIRE: ({S.SCHEDULED, S.PENDING, S.WAITING}, S.CANCELLED),
    Action.RETRY: (ENDED_BADLY, S.PENDING),
    Action.APPROVE: ({S.REVIEW_NEEDED}, S.COMPLETED),
    Action.REJECT: ({S.REVIEW_NEEDED}, S.FAILED),
    Action.RERUN: ({S.REVIEW_NEEDED}, S.PENDING),
    Action.WAKE: ({S.WAITING}, S.PENDING),
    Action.RUN_NOW: ({S.SCHEDULED}, S.PENDING),
    Action.RESCHEDULE: ({S.SCHEDULED, S.PENDING}, S.SCHEDULED),
}


def test_every_action_has_a_row() -> None:
    assert set(ACTIONS) == set(Action)


EVENTS = {
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
"""The event that each action publishes."""


@pytest.mark.parametrize(("action", "state"), list(itertools.product(Action, JobState)))
def test_an_action_is_allowed_from_its_states_only(action: Action, state: JobState) -> None:
    befores, after = ACTIONS[action]
    assert expected(action) == befores
    if state in befores:
        restart = action in (Action.RETRY, Action.RERUN)
        change = Move(
            ID, "default", frozenset(befores), after, action.value, restart=restart, event=EVENTS[action]
        )
        assert move(a_job(state), action) == change
        assert move(a_job(state), action, by="ada") == replace(change, by="ada")
        assert after in TRANSITIONS[state]
        return
    with pytest.raises(IllegalTransition) as caught:
        move(a_job(state), action)
    needs = " or ".join(sorted(befores))
    assert str(caught.value) == f"cannot {action} job {ID}: it is {state}; that needs {needs}"
    assert caught.value.details == {"id": ID, "state": state, "action": action}


@pytest.mark.parametrize("state", [S.CLAIMED, S.RUNNING])
@pytest.mark.parametrize("action", Action)
def test_a_held_job_cannot_be_moved(action: Action, state: JobState) -> None:
    with pytest.raises(IllegalTransition):
        move(a_job(state), action)


@given(words, st.text(min_size=1, max_size=8))
def test_a_move_keeps_the_tenant_and_the_given_reason(reason: str, tenant: str) -> None:
    cancelled = move(a_job(S.PENDING, tenant=tenant), Action.CANCEL, reason)
    assert (cancelled.tenant, cancelled.reason) == (tenant, reason)
