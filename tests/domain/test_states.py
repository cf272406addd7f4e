"""Tests of the state table."""

from __future__ import annotations

import itertools

import pytest

from tidemill.domain.states import ENDED, HELD, LIVE, TRANSITIONS, ExecutionState, JobState, allowed

S = JobState
# States that an enqueue creates.
INITIAL = {S.SCHEDULED, S.PENDING}
# States that wait for something other than a worker or a clock.
PARKED = {S.WAITING, S.REVIEW_NEEDED}


def reachable(start: set[JobState]) -> set[JobState]:
    seen, todo = set(start), list(start)
    while todo:
        new = TRANSITIONS[todo.pop()] - seen
        seen |= new
        todo += new
    return seen


def test_every_state_has_a_row_in_the_table() -> None:
    assert set(TRANSITIONS) == set(JobState)


def test_only_a_scheduled_job_can_be_rescheduled() -> None:
    assert [state for state, after in TRANSITIONS.items() if state in after] == [JobState.SCHEDULED]


@pytest.mark.parametrize("state", sorted(ENDED))
def test_an_ended_job_is_reopened_only_as_pending_or_waiting(state: JobState) -> None:
    assert TRANSITIONS[state] <= {S.PENDING, S.WAITING}


def test_a_completed_job_is_reopened_like_any_ended_one_when_its_flow_is_retried() -> None:
    assert TRANSITIONS[S.COMPLETED] == {S.PENDING, S.WAITING}


def test_every_state_can_be_reached_from_enqueue() -> None:
    assert reachable(INITIAL) == set(JobState)


@pytest.mark.parametrize("state", sorted(LIVE))
def test_every_live_job_can_reach_every_final_state(state: JobState) -> None:
    assert reachable({state}) >= ENDED


@pytest.mark.parametrize("state", sorted(LIVE))
def test_every_live_job_can_be_cancelled(state: JobState) -> None:
    assert S.CANCELLED in TRANSITIONS[state]


def test_only_a_pending_job_can_be_claimed() -> None:
    assert {before for before, after in TRANSITIONS.items() if S.CLAIMED in after} == {S.PENDING}


def test_only_a_pending_or_claimed_job_can_start() -> None:
    assert {before for before, after in TRANSITIONS.items() if S.RUNNING in after} == {S.PENDING, S.CLAIMED}


def test_only_running_reviewed_and_skipped_jobs_can_complete() -> None:
    assert {before for before, after in TRANSITIONS.items() if S.COMPLETED in after} == {
        S.RUNNING,
        S.REVIEW_NEEDED,
        S.PENDING,
        S.SCHEDULED,
        S.WAITING,
    }


def test_only_a_running_job_times_out() -> None:
    assert {before for before, after in TRANSITIONS.items() if S.TIMED_OUT in after} == {S.RUNNING}


def test_only_running_and_ended_jobs_begin_to_wait() -> None:
    assert {before for before, after in TRANSITIONS.items() if S.WAITING in after} == {S.RUNNING, *ENDED}


def test_a_running_job_can_reach_every_state_but_claimed() -> None:
    assert TRANSITIONS[S.RUNNING] == set(JobState) - {S.CLAIMED, S.RUNNING}


def test_every_state_is_either_live_or_ended() -> None:
    assert set(JobState) == LIVE | ENDED
    assert not LIVE & ENDED


def test_live_states_are_held_parked_or_initial() -> None:
    assert HELD | PARKED | INITIAL == LIVE
    for one, other in itertools.combinations((HELD, PARKED, INITIAL), 2):
        assert not one & other


def test_allowed_reads_the_table() -> None:
    assert allowed(S.PENDING, S.CLAIMED)
    assert not allowed(S.CLAIMED, S.WAITING)
    assert not allowed(S.COMPLETED, S.CLAIMED)


@pytest.mark.parametrize("kind", [JobState, ExecutionState])
def test_a_state_value_is_its_lower_case_name(kind: type[JobState] | type[ExecutionState]) -> None:
    for state in kind:
        assert state.value == state.name.lower()
        assert f"{state}" == state.value
        assert kind(state.value) is state


def test_the_state_values_are_as_documented() -> None:
    assert [state.value for state in JobState] == [
        "scheduled", "pending", "claimed", "running", "waiting", "review_needed",
        "completed", "failed", "timed_out", "cancelled", "dead_lettered",
    ]  # fmt: skip
    assert [state.value for state in ExecutionState] == [
        "running", "succeeded", "failed", "timed_out", "cancelled", "crashed", "released", "suspended", "review",
    ]  # fmt: skip
