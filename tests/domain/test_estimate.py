"""Tests of estimated end times."""

from __future__ import annotations

import math
import random
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.strategies import NOW, instants, waits

from tidemill.domain.estimate import drain_time, eta, eta_from_past, eta_from_rate, fraction_of

MINUTE = timedelta(minutes=1)
fractions = st.floats(0.0, 1.0)


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_a_fraction_is_between_zero_and_one(step: int, total: int) -> None:
    assert 0.0 <= fraction_of(step, total) <= 1.0


@pytest.mark.parametrize(
    ("step", "total", "fraction"), [(0, 4, 0), (1, 4, 0.25), (4, 4, 1), (9, 4, 1), (-1, 4, 0), (3, 0, 0)]
)
def test_steps_become_a_fraction(step: int, total: int, fraction: float) -> None:
    assert fraction_of(step, total) == fraction


@given(st.integers(0, 1000), st.integers(1, 1000))
def test_another_step_never_lowers_the_fraction(step: int, total: int) -> None:
    assert fraction_of(step, total) <= fraction_of(step + 1, total)


@pytest.mark.parametrize(("fraction", "minutes_left"), [(0.5, 10), (0.25, 30), (0.1, 90), (0.8, 2.5)])
def test_the_estimate_extrapolates_the_rate(fraction: float, minutes_left: float) -> None:
    end = eta_from_rate(NOW, fraction, NOW + 10 * MINUTE)
    assert end is not None
    assert abs(end - (NOW + (10 + minutes_left) * MINUTE)) < timedelta(milliseconds=1)


@given(instants, fractions, waits)
def test_an_estimate_is_never_before_its_report(start: datetime, fraction: float, ran: timedelta) -> None:
    end = eta_from_rate(start, fraction, start + ran)
    assert end is None or end >= start + ran


def test_without_data_there_is_no_estimate() -> None:
    assert eta_from_rate(NOW, 0.0, NOW + MINUTE) is None
    assert eta_from_rate(NOW, 0.5, NOW) is None
    assert eta_from_rate(NOW, 0.5, NOW - MINUTE) is None
    assert eta_from_past(NOW, [], NOW) is None
    assert eta(NOW, NOW + MINUTE) is None


def test_an_estimate_beyond_the_calendar_is_none() -> None:
    assert eta_from_rate(NOW, 5e-324, NOW + MINUTE) is None
    assert eta_from_rate(NOW, 1e-12, NOW + timedelta(days=30)) is None
    assert drain_time(10**400, 1e-300) is None
    assert drain_time(10**9, 1e-300) is None


def test_a_full_report_ends_the_job_at_the_report() -> None:
    assert eta_from_rate(NOW, 1.0, NOW + MINUTE) == NOW + MINUTE
    assert eta(NOW, NOW + 5 * MINUTE, fraction=1.0, reported_at=NOW + MINUTE) == NOW + MINUTE


@pytest.mark.parametrize(
    ("minutes", "median"), [([5], 5), ([1, 9], 5), ([1, 2, 100], 2), ([100, 1, 2, 4], 3)]
)
def test_past_runs_are_estimated_by_their_median(minutes: list[int], median: int) -> None:
    assert eta_from_past(NOW, [n * MINUTE for n in minutes], NOW) == NOW + median * MINUTE


@given(st.lists(waits, min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_the_order_of_past_runs_does_not_matter(past: list[timedelta], rng: random.Random) -> None:
    shuffled = rng.sample(past, len(past))
    assert (
        eta_from_past(NOW, past, NOW)
        == eta_from_past(NOW, shuffled, NOW)
        == eta_from_past(NOW, sorted(past), NOW)
    )


@given(waits, st.none() | fractions.filter(lambda f: f < 1.0), st.none() | waits, st.lists(waits, max_size=5))
def test_no_estimate_of_an_unfinished_job_is_in_the_past(
    ran: timedelta, fraction: float | None, reported: timedelta | None, past: list[timedelta]
) -> None:
    now = NOW + ran
    end = eta(
        NOW,
        now,
        fraction=fraction,
        reported_at=None if reported is None else min(NOW + reported, now),
        past=past,
    )
    assert end is None or end >= now


def test_the_own_rate_is_preferred_to_past_runs() -> None:
    now = NOW + 10 * MINUTE
    assert eta(NOW, now, fraction=0.5, past=[99 * MINUTE]) == NOW + 20 * MINUTE
    assert eta(NOW, now, fraction=0.0, past=[99 * MINUTE]) == NOW + 99 * MINUTE
    assert eta(NOW, now, past=[99 * MINUTE]) == NOW + 99 * MINUTE


@pytest.mark.parametrize(
    ("pending", "rate", "time"),
    [(0, 0.0, timedelta(0)), (0, 5.0, timedelta(0)), (-3, 1.0, timedelta(0)), (120, 2.0, MINUTE), (1, 0.0, None), (1, -1.0, None)],
)  # fmt: skip
def test_drain_time_follows_the_rate(pending: int, rate: float, time: timedelta | None) -> None:
    assert drain_time(pending, rate) == time


def test_nan_gives_no_estimate() -> None:
    assert eta_from_rate(NOW, math.nan, NOW + MINUTE) is None
    assert drain_time(1, math.nan) is None


def test_past_runs_beyond_the_calendar_give_no_estimate() -> None:
    assert eta_from_past(NOW, [timedelta.max], NOW) is None
