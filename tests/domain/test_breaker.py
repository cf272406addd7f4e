"""Tests of circuit breakers: opening, probing and serialization."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.breaker import (
    SLICES,
    Breaker,
    BreakerPhase,
    BreakerState,
    after,
    phase_at,
    read,
    reopens_at,
    written,
)
from tidemill.errors import BadSettings

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TICK, SECOND = timedelta(microseconds=1), timedelta(seconds=1)
HALF = Breaker("x", failures=0.5, least=4, window=60 * SECOND, rest=30 * SECOND, probes=2)

instants = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
slices = st.lists(
    st.tuples(st.floats(0, 1e10), st.integers(0, 1000), st.integers(0, 1000)), max_size=SLICES
).map(tuple)
standings = st.builds(
    BreakerState,
    st.sampled_from(BreakerPhase),
    st.none() | instants,
    st.none() | instants,
    slices,
    st.integers(0, 9),
)
steps = st.lists(
    st.tuples(st.floats(0, 40).map(lambda s: timedelta(seconds=s)), st.integers(0, 5), st.integers(0, 5)),
    max_size=30,
)


@pytest.mark.parametrize(
    "wrong",
    [
        {"failures": 0},
        {"failures": 1.1},
        {"failures": -1},
        {"least": 0},
        {"probes": 0},
        {"window": timedelta(0)},
        {"rest": timedelta(0)},
    ],
    ids=str,
)
def test_invalid_breaker_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadSettings):
        Breaker("x", **wrong)  # type: ignore[arg-type]


@given(standings)
def test_a_standing_round_trips(standing: BreakerState) -> None:
    assert read(written(standing)) == standing


def test_an_unwritten_breaker_is_closed() -> None:
    assert read(None) == read("") == BreakerState()
    assert phase_at(None, NOW) is BreakerPhase.CLOSED
    assert reopens_at(None) is None


def test_too_many_failures_open_a_breaker() -> None:
    standing = after(HALF, BreakerState(), 2, 1, NOW)
    assert (standing.phase, standing.jobs, standing.failed) == (BreakerPhase.CLOSED, 3, 1)
    standing = after(HALF, standing, 0, 1, NOW)
    assert standing == BreakerState(BreakerPhase.OPEN, NOW, NOW + HALF.rest)


def test_too_few_jobs_do_not_open_a_breaker() -> None:
    assert after(HALF, BreakerState(), 0, 3, NOW).phase is BreakerPhase.CLOSED
    assert after(HALF, BreakerState(), 0, 4, NOW).phase is BreakerPhase.OPEN


def test_a_small_share_of_failures_does_not_open_a_breaker() -> None:
    assert after(HALF, BreakerState(), 5, 4, NOW).phase is BreakerPhase.CLOSED
    assert after(HALF, BreakerState(), 4, 4, NOW).phase is BreakerPhase.OPEN


def test_a_success_does_not_open_a_breaker() -> None:
    standing = after(HALF, BreakerState(), 0, 3, NOW)
    assert after(HALF, standing, 1, 0, NOW).phase is BreakerPhase.CLOSED


def test_failures_before_the_window_do_not_count() -> None:
    standing = after(HALF, BreakerState(), 0, 3, NOW)
    assert after(HALF, standing, 0, 1, NOW + 50 * SECOND).phase is BreakerPhase.OPEN
    late = after(HALF, standing, 0, 1, NOW + 61 * SECOND)
    assert (late.phase, late.jobs, late.failed) == (BreakerPhase.CLOSED, 1, 1)


def test_a_breaker_is_half_open_after_its_pause() -> None:
    state = written(BreakerState(BreakerPhase.OPEN, NOW, NOW + HALF.rest))
    assert phase_at(state, NOW + HALF.rest - TICK) is BreakerPhase.OPEN
    assert phase_at(state, NOW + HALF.rest) is BreakerPhase.HALF_OPEN
    assert reopens_at(state) == NOW + HALF.rest


def test_results_during_the_pause_change_nothing() -> None:
    resting = BreakerState(BreakerPhase.OPEN, NOW, NOW + HALF.rest)
    assert after(HALF, resting, 9, 9, NOW + HALF.rest - TICK) == resting


def test_enough_successful_probes_close_a_breaker() -> None:
    rested_at = NOW + HALF.rest
    proving = after(HALF, BreakerState(BreakerPhase.OPEN, NOW, rested_at), 1, 0, rested_at)
    assert (proving.phase, proving.proven, proving.opened_at) == (BreakerPhase.HALF_OPEN, 1, NOW)
    assert phase_at(written(proving), rested_at + HALF.rest) is BreakerPhase.HALF_OPEN
    assert reopens_at(written(proving)) is None
    assert after(HALF, proving, 1, 0, rested_at) == BreakerState()


@pytest.mark.parametrize("proven", [0, 1])
def test_one_failed_probe_opens_a_breaker_again(proven: int) -> None:
    rested_at = NOW + HALF.rest
    proving = after(HALF, BreakerState(BreakerPhase.OPEN, NOW, rested_at), proven, 0, rested_at)
    assert after(HALF, proving, 1, 1, rested_at) == BreakerState(
        BreakerPhase.OPEN, rested_at, rested_at + HALF.rest
    )


def test_a_clock_step_back_keeps_failures() -> None:
    standing = after(HALF, BreakerState(), 0, 3, NOW)
    assert after(HALF, standing, 0, 1, NOW - 20 * SECOND).phase is BreakerPhase.OPEN


@given(steps)
def test_a_breaker_opens_exactly_by_its_window(events: list[tuple[timedelta, int, int]]) -> None:
    """Compare with a plain list of everything that ended since the last closing, in slices of the window."""
    size = HALF.window.total_seconds() / SLICES
    standing, now = BreakerState(), NOW
    seen: list[tuple[float, int, int]] = []
    for wait, succeeded, failed in events:
        now += wait
        resting = standing.rests_until_at is not None and now < standing.rests_until_at
        before, standing = standing, after(HALF, standing, succeeded, failed, now)
        assert read(written(standing)) == standing
        if before.phase is not BreakerPhase.CLOSED:
            seen = []
            wanted = _phase_after_probes(before, resting, succeeded, failed)
        else:
            begin = now.timestamp() // size * size
            seen.append((begin, succeeded + failed, failed))
            within = [part for part in seen if part[0] > begin - HALF.window.total_seconds()]
            jobs, bad = sum(part[1] for part in within), sum(part[2] for part in within)
            opens = failed and jobs >= HALF.least and bad >= HALF.failures * jobs
            wanted = BreakerPhase.OPEN if opens else BreakerPhase.CLOSED
            if not opens:
                assert (standing.jobs, standing.failed) == (jobs, bad)
        assert standing.phase is wanted
        assert len(standing.slices) <= SLICES + 1


def _phase_after_probes(before: BreakerState, resting: bool, succeeded: int, failed: int) -> BreakerPhase:
    if resting or failed:
        return BreakerPhase.OPEN
    return BreakerPhase.CLOSED if before.proven + succeeded >= HALF.probes else BreakerPhase.HALF_OPEN
