"""Tests of retry policies."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.domain.strategies import retries, shares, waits

from tidemill.domain.retry import (
    DEFAULT_RETRY,
    PRESETS,
    Exponential,
    Fixed,
    Immediate,
    Linear,
    NoRetry,
    RetryPolicy,
    policy_from_data,
    policy_to_data,
    preset,
)
from tidemill.errors import BadSettings

ZERO = timedelta(0)
YEAR = timedelta(days=365)
attempts = st.integers(1, 10**6)


def seconds(policy: RetryPolicy, count: int, jitter: float = 0.5) -> list[float]:
    return [policy.delay(attempt, jitter).total_seconds() for attempt in range(1, count + 1)]


@pytest.mark.parametrize(
    ("name", "curve"),
    [
        ("none", [0, 0, 0]),
        ("immediate", [0, 0, 0]),
        ("exponential_5s", [5, 10, 20, 40]),
        ("linear_5s", [5, 10, 15]),
        ("fixed_60s", [60, 60, 60]),
        ("linear_30s", [30, 60, 90]),
        ("exponential_30s", [30, 60, 120]),
        ("exponential_30s_jitter", [30, 60, 120]),  # in the middle of the spread
        ("default", [5, 10, 20, 40, 80, 160, 300, 300]),
    ],
)
def test_a_preset_follows_its_delay_curve(name: str, curve: list[float]) -> None:
    assert seconds(preset(name), len(curve)) == curve


@pytest.mark.parametrize(("attempt", "least", "most"), [(1, 15, 45), (2, 30, 90), (3, 60, 180)])
def test_jitter_spreads_a_delay_by_half_both_ways(attempt: int, least: float, most: float) -> None:
    policy = preset("exponential_30s_jitter")
    assert policy.delay(attempt, 0.0).total_seconds() == least
    assert policy.delay(attempt, 0.5).total_seconds() == (least + most) / 2
    assert most * 0.999 < policy.delay(attempt, math.nextafter(1.0, 0.0)).total_seconds() <= most


def test_the_default_retry_policy() -> None:
    assert Exponential(4, timedelta(seconds=5), 2.0, 0.5, timedelta(seconds=300)) == DEFAULT_RETRY
    assert PRESETS["default"] is DEFAULT_RETRY


@pytest.mark.parametrize(
    ("name", "most"), [("none", 1), ("immediate", 3), ("default", 4), ("exponential_5s", 3), ("fixed_60s", 4)]
)
def test_a_preset_has_a_maximum_of_attempts(name: str, most: int) -> None:
    assert preset(name).max_attempts == most


def test_an_unknown_preset_error_lists_the_presets() -> None:
    with pytest.raises(BadSettings) as caught:
        preset("weekly")
    assert "'weekly'" in str(caught.value)
    for name in PRESETS:
        assert name in str(caught.value)


@given(retries, attempts, shares)
def test_a_delay_is_never_negative(policy: RetryPolicy, attempt: int, jitter: float) -> None:
    assert policy.delay(attempt, jitter) >= ZERO


@given(st.sampled_from([Fixed, Linear, Exponential, Immediate]), waits, st.floats(0, 1), attempts, shares)
def test_the_cap_applies_after_jitter(
    kind: type[Fixed] | type[Linear] | type[Exponential] | type[Immediate],
    cap: timedelta,
    share: float,
    attempt: int,
    jitter: float,
) -> None:
    assert kind(cap=cap, jitter=share).delay(attempt, jitter) <= cap


@given(attempts, shares, st.floats(1.0, 1e300))
def test_without_a_cap_delays_stay_within_two_years(attempt: int, jitter: float, factor: float) -> None:
    for policy in (Exponential(factor=factor, cap=None), Linear(jitter=1.0, cap=None)):
        assert ZERO <= policy.delay(attempt, jitter) <= 2 * YEAR


@given(st.sampled_from([Linear(), Exponential(jitter=0.0), Fixed(), Linear(cap=None)]), st.integers(1, 1000))
def test_delays_do_not_shrink(policy: RetryPolicy, attempt: int) -> None:
    assert policy.delay(attempt, 0.5) <= policy.delay(attempt + 1, 0.5)


@given(retries, attempts, shares, shares)
def test_a_delay_increases_with_its_random_share(
    policy: RetryPolicy, attempt: int, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    assert policy.delay(attempt, low) <= policy.delay(attempt, high)


@given(waits, st.floats(0, 1), shares)
def test_jitter_stays_within_its_share(wait: timedelta, share: float, jitter: float) -> None:
    drawn = Fixed(wait=wait, jitter=share).delay(1, jitter)
    tick = timedelta(microseconds=1)
    assert wait * (1 - share) - tick <= drawn <= wait * (1 + share) + tick


@given(shares, attempts)
def test_without_jitter_delays_are_not_random(jitter: float, attempt: int) -> None:
    for policy in (Fixed(), Linear(), Exponential(jitter=0.0), NoRetry(), Immediate()):
        assert policy.delay(attempt, jitter) == policy.delay(attempt, 0.0)


@given(shares)
def test_an_immediate_retry_draws_its_jitter_from_the_cap(jitter: float) -> None:
    policy = Immediate(jitter=0.5, cap=timedelta(seconds=10))
    assert ZERO <= policy.delay(1, jitter) <= timedelta(seconds=5)


@pytest.mark.parametrize("attempt", [0, -1])
def test_an_attempt_before_the_first_counts_as_the_first(attempt: int) -> None:
    for policy in (Linear(), Exponential()):
        assert policy.delay(attempt, 0.5) == policy.delay(1, 0.5)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: Fixed(max_attempts=0), "Fixed: max_attempts is 0; one attempt is the least"),
        (lambda: Linear(max_attempts=-3), "Linear: max_attempts is -3; one attempt is the least"),
        (lambda: Immediate(max_attempts=0), "Immediate: max_attempts is 0; one attempt is the least"),
        (lambda: Exponential(jitter=1.1), "Exponential: jitter is 1.1; give a share between 0 and 1"),
        (lambda: Exponential(jitter=math.nan), "Exponential: jitter is nan; give a share between 0 and 1"),
        (lambda: Fixed(jitter=-0.1), "Fixed: jitter is -0.1; give a share between 0 and 1"),
        (lambda: Fixed(wait=timedelta(-1)), "Fixed: a wait is negative; give durations of zero or more"),
        (lambda: Linear(wait=timedelta(-1)), "Linear: a wait is negative; give durations of zero or more"),
        (
            lambda: Immediate(cap=timedelta(-1)),
            "Immediate: a wait is negative; give durations of zero or more",
        ),
        (lambda: Exponential(factor=0.5), "Exponential: factor is 0.5; it must be a number of 1 or more"),
    ],
)
def test_an_invalid_setting_is_refused(bad: type[Fixed], message: str) -> None:
    with pytest.raises(BadSettings) as caught:
        bad()
    assert str(caught.value) == message


def test_a_nan_factor_is_refused() -> None:
    with pytest.raises(BadSettings):
        Exponential(factor=math.nan)


def test_the_cap_applies_to_the_longest_delay() -> None:
    assert Fixed(wait=timedelta.max, jitter=0.5, cap=YEAR).delay(1, 0.9) == YEAR


@pytest.mark.parametrize("policy", [Linear, Exponential])
def test_the_former_name_of_the_first_delay_still_works(policy: Any) -> None:
    assert policy(initial="30s") == policy(wait="30s")
    with pytest.raises(TypeError, match="wait and initial are the same option"):
        policy(wait="30s", initial="30s")


@pytest.mark.parametrize("policy", [Fixed(wait="7s"), Linear(wait="7s"), Exponential(wait="7s")])
def test_every_policy_names_its_first_delay_alike(policy: Any) -> None:
    assert policy.wait == timedelta(seconds=7)
    assert policy_from_data(policy_to_data(policy) or {}) == policy


@pytest.mark.parametrize("kind", ["linear", "exponential"])
def test_workers_of_earlier_releases_can_read_stored_policies(kind: str) -> None:
    policy = policy_from_data({"kind": kind, "max_attempts": 2, "initial": 9})
    assert policy_to_data(policy) is not None
    assert (policy_to_data(policy) or {})["initial"] == 9
