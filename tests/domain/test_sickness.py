"""Tests of the signs of a sick runner, and of the outcome of its jobs."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.strategies import a_claim, claims

from tidemill.domain.job import Claim
from tidemill.domain.outcome import Crashed, Released, TimedOut
from tidemill.domain.runner_health import NO_FILES, UNWELL, HealthBounds, RunnerSigns, diagnose, verdicts
from tidemill.domain.states import JobState

BOUNDS = HealthBounds(patience=5.0, silence=120.0)
seconds = st.floats(0, 500)
signs = st.builds(RunnerSigns, seconds, seconds, seconds, st.booleans(), seconds, seconds, seconds)


def replaced(**given: float) -> bool:
    diagnosis = diagnose(RunnerSigns(**given), BOUNDS)  # type: ignore[arg-type]
    return diagnosis is not None and diagnosis.replace


@pytest.mark.parametrize(
    ("sign", "bound"),
    [("silence", 120), ("overdue", 5), ("loop", 120), ("pump", 60), ("store", 60), ("files", NO_FILES)],
)
def test_each_sign_has_a_bound_after_which_the_runner_is_replaced(sign: str, bound: float) -> None:
    assert not replaced(**{sign: bound - 0.1})
    assert replaced(**{sign: bound})


def test_a_blocked_loop_with_waiting_jobs_is_replaced_sooner() -> None:
    assert not replaced(loop=30)
    assert replaced(loop=30, loop_waiting=True)


def test_a_runner_without_signs_is_healthy() -> None:
    assert diagnose(RunnerSigns(), BOUNDS) is None
    assert diagnose(RunnerSigns(silence=2.5, loop=1.0, pump=2.0), BOUNDS) is None


@given(signs)
def test_every_lasting_sign_gives_a_diagnosis(drawn: RunnerSigns) -> None:
    diagnosis = diagnose(drawn, BOUNDS)
    worst = max(drawn._replace(loop_waiting=False))
    if worst >= UNWELL:
        assert diagnosis is not None
        assert diagnosis.reason
    if diagnosis is None:
        assert worst < UNWELL


@given(signs, signs)
def test_a_stronger_sign_never_makes_a_runner_healthier(held_claims: RunnerSigns, more: RunnerSigns) -> None:
    worse = RunnerSigns._make(max(one, other) for one, other in zip(held_claims, more, strict=True))
    before, after = diagnose(held_claims, BOUNDS), diagnose(worse, BOUNDS)
    if before is not None:
        assert after is not None
        assert after.replace or not before.replace


def held(number: int, state: JobState = JobState.RUNNING, **fields: object) -> Claim:
    return a_claim(id=UUID(int=number), state=state, **fields)


def test_an_overdue_job_times_out_and_others_are_released() -> None:
    late, neighbour = held(1, timeout=timedelta(seconds=8)), held(2)
    verdict = verdicts([late, neighbour], {late.id}, (), "sick")
    assert verdict(late) == TimedOut(timedelta(seconds=8))
    assert verdict(neighbour) == Released("sick")


def test_only_the_job_that_blocked_the_loop_is_a_suspect() -> None:
    blocker, neighbour = held(1), held(2)
    verdict = verdicts([blocker, neighbour], (), {blocker.id}, "sick")
    assert verdict(blocker) == Crashed("sick", alone=False)
    assert verdict(neighbour) == Released("sick")


def test_an_unexplained_sickness_is_a_crash_in_company() -> None:
    one, other = held(1), held(2)
    verdict = verdicts([one, other], (), (), "sick")
    assert verdict(one) == verdict(other) == Crashed("sick", alone=False)
    assert verdicts([one], (), (), "sick")(one) == Crashed("sick", alone=True)


@given(st.lists(claims(), max_size=6), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
def test_only_a_job_without_company_crashes_alone(
    held_claims: list[Claim], late: set[int], blamed: set[int]
) -> None:
    held_claims = [claim._replace(id=UUID(int=number)) for number, claim in enumerate(held_claims)]
    verdict = verdicts(held_claims, {UUID(int=n) for n in late}, {UUID(int=n) for n in blamed}, "sick")
    begun = [claim for claim in held_claims if claim.state is JobState.RUNNING or not claim.crashes]
    for claim in held_claims:
        outcome = verdict(claim)
        if isinstance(outcome, Crashed) and outcome.alone and claim in begun:
            assert len(begun) == 1
