"""Laws that hold for every decision, whatever the job, the outcome, the policy and the dice; and the moves of people."""

from __future__ import annotations

import itertools
from datetime import timedelta

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

from tidemill.domain.decide import DEFAULT_POLICY, Action, OrphanRule, Policy, decide, expected, move
from tidemill.domain.job import Claim, Move
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
from tidemill.domain.states import ENDED, TRANSITIONS, ExecutionState, JobState
from tidemill.errors import IllegalTransition

S, E = JobState, ExecutionState
AGAIN = {S.PENDING, S.SCHEDULED}
EVEN_BEFORE_THE_START = (Failed, Cancelled, Crashed, Released, Snoozed)
trouble = failures | st.builds(TimedOut, waits)


def waited_as_a_suspect(claim: Claim) -> bool:
    """Its start would have been written before it began: it did not run when its worker died."""
    return claim.state is JobState.CLAIMED and claim.crashes > 0


@given(claims(), outcomes, policies, shares)
def test_the_result_is_allowed_from_running(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    assert decide(claim, outcome, policy, NOW, dice).state in TRANSITIONS[S.RUNNING]


@given(claims(), outcomes.filter(lambda o: isinstance(o, EVEN_BEFORE_THE_START)), policies, shares)
def test_what_can_happen_before_the_start_is_allowed_from_claimed(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    assert decide(claim, outcome, policy, NOW, dice).state in TRANSITIONS[S.CLAIMED]


@given(claims(), outcomes, policies, shares)
def test_an_attempt_beyond_the_last_is_never_granted(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    written = decide(claim, outcome, policy, NOW, dice)
    if written.state in AGAIN and not written.refund:
        assert claim.attempt + 1 <= claim.max_attempts


@given(claims(), outcomes, policies, shares)
def test_a_job_asked_to_stop_does_not_come_back(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    assume(claim.cancel_reason is not None)
    assert decide(claim, outcome, policy, NOW, dice).state not in AGAIN | {S.WAITING}


@given(claims(), trouble | st.builds(Crashed, words), policies, shares)
def test_an_expired_job_is_not_retried(claim: Claim, outcome: Outcome, policy: Policy, dice: float) -> None:
    written = decide(claim._replace(expires_at=NOW), outcome, policy, NOW, dice)
    assert written.state in ENDED | {S.REVIEW_NEEDED}


@given(claims(), outcomes, policies, shares)
def test_a_job_never_comes_back_later_than_it_expires(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    written = decide(claim, outcome, policy, NOW, dice)
    if written.state in AGAIN and claim.expires_at is not None:
        assert NOW + written.delay < claim.expires_at


@given(claims(), st.builds(Released, words) | st.builds(Snoozed, waits), policies, shares)
def test_a_job_put_off_gets_its_attempt_back(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    written = decide(claim._replace(cancel_reason=None, expires_at=None), outcome, policy, NOW, dice)
    assert written.refund
    assert written.execution is E.RELEASED
    assert written.state in AGAIN


@given(claims(), outcomes, policies, shares)
def test_an_attempt_is_given_back_only_to_a_job_put_off_or_suspended(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    if decide(claim, outcome, policy, NOW, dice).refund:
        assert isinstance(outcome, Released | Snoozed | Suspended) or waited_as_a_suspect(claim)


@given(claims(), outcomes, policies, shares)
def test_a_crash_is_counted_if_and_only_if_there_was_one(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    counted = isinstance(outcome, Crashed) and not waited_as_a_suspect(claim)
    assert decide(claim, outcome, policy, NOW, dice).crashed is counted


@given(claims(), policies, shares)
def test_a_job_does_not_survive_more_crashes_than_the_cap(claim: Claim, policy: Policy, dice: float) -> None:
    written = decide(claim, Crashed("gone"), policy, NOW, dice)
    if written.state in AGAIN and not waited_as_a_suspect(claim):
        assert claim.crashes + 1 < policy.crash_cap
        assert policy.orphans is OrphanRule.REQUEUE


@given(claims(), outcomes, policies, shares)
def test_a_scheduled_job_has_a_wait_and_a_pending_one_has_none(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    written = decide(claim, outcome, policy, NOW, dice)
    if written.state is S.SCHEDULED:
        assert written.delay > timedelta(0)
    elif written.state is not S.WAITING:
        assert written.delay == timedelta(0)


@given(claims(), outcomes, policies, shares)
def test_every_transition_but_success_says_why(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    written = decide(claim, outcome, policy, NOW, dice)
    assert written.reason or isinstance(outcome, Succeeded)


@given(claims(), outcomes, policies, shares)
def test_the_execution_tells_what_happened_not_what_became_of_the_job(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    told = {
        Succeeded: {E.SUCCEEDED},
        Failed: {E.FAILED},
        TimedOut: {E.TIMED_OUT},
        Cancelled: {E.CANCELLED},
        Crashed: {E.CRASHED},
        Released: {E.RELEASED},
        Snoozed: {E.RELEASED},
        Suspended: {E.SUSPENDED},
        Review: {E.REVIEW},
    }
    if isinstance(outcome, Crashed) and waited_as_a_suspect(claim):
        told[Crashed] = {E.RELEASED}
    assert decide(claim, outcome, policy, NOW, dice).execution in told[type(outcome)]


@given(claims(), outcomes, policies, shares)
def test_the_same_question_has_the_same_answer(
    claim: Claim, outcome: Outcome, policy: Policy, dice: float
) -> None:
    assert decide(claim, outcome, policy, NOW, dice) == decide(claim, outcome, policy, NOW, dice)


# What the rule book does not yet say as it should; each mark falls with its repair.


def test_a_job_asked_to_stop_does_not_wait_for_a_person() -> None:
    written = decide(a_claim(cancel_reason="stop"), Review("look"), DEFAULT_POLICY, NOW, 0.0)
    assert written.state is S.CANCELLED


def test_a_task_whose_orphans_go_to_a_person_has_that_even_with_one_attempt() -> None:
    written = decide(a_claim(max_attempts=1), Crashed("gone"), Policy(orphans=OrphanRule.REVIEW), NOW, 0.0)
    assert written.state is S.REVIEW_NEEDED


def test_a_wait_beyond_the_calendar_is_a_wait_beyond_expiry() -> None:
    written = decide(a_claim(expires_at=NOW + timedelta(1)), Snoozed(timedelta.max), DEFAULT_POLICY, NOW, 0.0)
    assert written.reason == "expired"


def test_no_wait_is_negative() -> None:
    assert decide(a_claim(), Suspended("nap", timedelta(-1)), DEFAULT_POLICY, NOW, 0.0).delay == timedelta(0)


# ------------------------------------------------------------------------------------------- moves of people and duties

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
}


def test_every_action_has_a_row() -> None:
    assert set(ACTIONS) == set(Action)


@pytest.mark.parametrize(("action", "state"), list(itertools.product(Action, JobState)))
def test_an_action_is_carried_out_from_its_states_and_refused_from_all_others(
    action: Action, state: JobState
) -> None:
    befores, after = ACTIONS[action]
    assert expected(action) == befores
    if state in befores:
        restart = action in (Action.RETRY, Action.RERUN)
        assert move(a_job(state), action) == Move(
            ID, "default", frozenset(befores), after, action.value, restart=restart
        )
        assert after in TRANSITIONS[state]
        return
    with pytest.raises(IllegalTransition) as caught:
        move(a_job(state), action)
    needs = " or ".join(sorted(befores))
    assert str(caught.value) == f"cannot {action} job {ID}: it is {state}; that needs {needs}"
    assert caught.value.facts == {"id": ID, "state": state, "action": action}


@pytest.mark.parametrize("state", [S.CLAIMED, S.RUNNING])
@pytest.mark.parametrize("action", Action)
def test_nothing_is_moved_out_of_a_workers_hands(action: Action, state: JobState) -> None:
    with pytest.raises(IllegalTransition):
        move(a_job(state), action)


@given(words, st.text(min_size=1, max_size=8))
def test_a_move_keeps_the_tenant_and_the_given_reason(reason: str, tenant: str) -> None:
    made = move(a_job(S.PENDING, tenant=tenant), Action.CANCEL, reason)
    assert (made.tenant, made.reason) == (tenant, reason)
