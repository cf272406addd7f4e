"""Tests of quantiles and time steps."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.rollups import Bucket, Distribution, bucket_of
from tidemill.domain.stats import MOST_STEPS, steps_of
from tidemill.errors import BadFilter

NOW = datetime(2026, 3, 1, 12, 30, 15, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@given(st.lists(st.integers(0, 10**11), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_in_the_bucket_of_the_least_covering_value(micros: list[int], share: float) -> None:
    value = Distribution.of(Bucket(bucket_of(micro), 1, micro) for micro in micros).quantile(share)
    assert value is not None
    buckets = sorted(bucket_of(micro) for micro in micros)
    number = bucket_of(value // timedelta(microseconds=1))
    assert sum(other <= number for other in buckets) >= len(buckets) * share
    assert sum(other < number for other in buckets) < len(buckets) * share


def test_an_empty_distribution_has_no_quantile() -> None:
    assert Distribution().quantile(0.5) is None


@given(
    st.timedeltas(SECOND, timedelta(days=8)),
    st.sampled_from([MINUTE, timedelta(minutes=7), timedelta(hours=1)]),
)
def test_steps_are_contiguous_and_end_with_the_current_one(window: timedelta, step: timedelta) -> None:
    if window / step > MOST_STEPS:
        return
    steps, step = steps_of(NOW, window, step)
    assert steps[-1] <= NOW < steps[-1] + step
    assert all(later - earlier == step for earlier, later in itertools.pairwise(steps))
    assert len(steps) * step >= window > (len(steps) - 1) * step


def test_too_many_steps_are_refused() -> None:
    with pytest.raises(BadFilter, match="2000 steps"):
        steps_of(NOW, timedelta(days=30), MINUTE)
