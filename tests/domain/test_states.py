"""Laws of the state table."""

from __future__ import annotations

import itertools

import pytest

from tidemill.domain.states import ENDED, HELD, LIVE, TRANSITIONS, ExecutionState, JobState, allowed

S = JobState
BIRTH = {S.SCHEDULED, S.PENDING}  # what an enqueue makes
PARKED = {S.WAITING, S.REVIEW_NEEDED}  # they wait for something other than a worker or a clock


def reachable(start: set[JobState]) -> set[JobState]:
    seen, todo = set(start), list(start)
    while todo:
        new = TRANSITIONS[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def test_every_state_has_a_row_in_the_table_and_no_other_row_is_there() -> None:
    assert set(TRANSITIONS) == set(JobState)


def test_the_table_leads_only_to_states() -> None:
    for after in TRANSITIONS.values():
        assert after <= set(JobState)


def test_only_a_scheduled_job_can_be_put_off_where_it_is() -> None:
    assert [state for state, after in TRANSITIONS.items() if state in after] == [JobState.SCHEDULED]


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_job_is_reopened_only_as_pending(state: JobState) -> None:
    assert TRANSITIONS[state] <= {S.PENDING}


def test_a_completed_job_is_never_reopened() -> None:
    assert TRANSITIONS[S.COMPLETED] == frozenset()


def test_every_state_can_be_reached_from_enqueue() -> None:
    assert reachable(BIRTH) == set(JobState)


@pytest.mark.parametrize("state", sorted(LIVE))
def test_every_live_job_can_come_to_an_end(state: JobState) -> None:
    assert reachable({state}) >= ENDED


@pytest.mark.parametrize("state", sorted(LIVE))
def test_every_live_job_can_be_cancelled(state: JobState) -> None:
    assert S.CANCELLED in TRANSITIONS[state]


def test_only_a_pending_job_is_claimed() -> None:
    assert {before for before, after in TRANSITIONS.items() if S.CLAIMED in after} == {S.PENDING}


def test_only_a_pending_or_claimed_job_begins_to_run() -> None:
    assert {before for before, after in TRANSITIONS.items() if S.RUNNING in after} == {S.PENDING, S.CLAIMED}


def test_only_a_running_job_or_a_person_completes_a_job() -> None:
    assert {before for before, after in TRANSITIONS.items() if S.COMPLETED in after} == {
        S.RUNNING,
        S.REVIEW_NEEDED,
    }


def test_a_job_that_never_ran_does_not_time_out_and_does_not_suspend_itself() -> None:
    for state in (S.TIMED_OUT, S.WAITING):
        assert {before for before, after in TRANSITIONS.items() if state in after} == {S.RUNNING}


def test_a_running_job_may_go_everywhere_but_back_to_claimed() -> None:
    assert TRANSITIONS[S.RUNNING] == set(JobState) - {S.CLAIMED, S.RUNNING}


def test_every_state_is_either_live_or_ended() -> None:
    assert set(JobState) == LIVE | ENDED
    assert not LIVE & ENDED


def test_live_states_are_held_parked_or_waiting_for_their_turn() -> None:
    assert HELD | PARKED | BIRTH == LIVE
    for one, other in itertools.combinations((HELD, PARKED, BIRTH), 2):
        assert not one & other


@pytest.mark.parametrize(("before", "after"), list(itertools.product(JobState, JobState)))
def test_allowed_says_what_the_table_says(before: JobState, after: JobState) -> None:
    assert allowed(before, after) is (after in TRANSITIONS[before])


@pytest.mark.parametrize("kind", [JobState, ExecutionState])
def test_a_state_is_its_own_lower_case_word(kind: type[JobState] | type[ExecutionState]) -> None:
    for state in kind:
        assert state.value == state.name.lower()
        assert f"{state}" == state.value
        assert kind(state.value) is state


def test_the_words_for_states_are_spelt_as_documented() -> None:
    assert [state.value for state in JobState] == [
        "scheduled", "pending", "claimed", "running", "waiting", "review_needed",
        "completed", "failed", "timed_out", "cancelled", "dead_lettered",
    ]  # fmt: skip
    assert [state.value for state in ExecutionState] == [
        "running", "succeeded", "failed", "timed_out", "cancelled", "crashed", "released", "suspended", "review",
    ]  # fmt: skip
