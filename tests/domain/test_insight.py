"""Tests of quantiles, error fingerprints and time steps."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.rollups import Bucket, Distribution, bucket_of
from tidemill.domain.states import JobState
from tidemill.domain.stats import (
    MOST_STEPS,
    FailedJob,
    error_groups,
    fingerprint,
    normalised,
    steps_of,
)
from tidemill.errors import BadFilter
from tidemill.ids import new_id

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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 1 not found", "order 4711 not found"),
        ("user 'ann' unknown", "user 'bob smith' unknown"),
        ('key "a" missing', 'key "b" missing'),
        ("object at 0x7f3a2b", "object at 0x11"),
        ("job 01890a5d-ac96-774b-bcce-b302099a8057 gone", "job 01890a5e-0000-774b-bcce-b302099a8057 gone"),
        ("took 3.5 s at 10:11:12", "took 12 s at 23:59:59"),
        (
            "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
            "commit 1234567890abcdef1234567890abcdef12345678",
        ),
        ("two  spaces\nand lines", "two spaces and lines"),
    ],
)
def test_messages_that_differ_in_values_share_a_fingerprint(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)
    assert fingerprint("t", "E", one) == fingerprint("t", "E", other)


@pytest.mark.parametrize(
    ("one", "other"), [("not found", "not allowed"), ("utf8 wanted", "utf16le wanted"), ("", "empty")]
)
def test_different_messages_have_different_fingerprints(one: str, other: str) -> None:
    assert fingerprint("t", "E", one) != fingerprint("t", "E", other)


def test_fingerprints_depend_on_task_and_type() -> None:
    assert len({fingerprint(task, kind, "x") for task in ("a", "b") for kind in ("E", "F", None)}) == 6


@given(st.text())
def test_any_text_has_a_fingerprint(text: str) -> None:
    assert len(fingerprint(text, text, text)) == 16


def trouble(
    message: str | None, seconds: int, *, task: str = "t", tenant: str = "a", reason: str = ""
) -> FailedJob:
    kind = None if message is None else "ValueError"
    at = NOW + seconds * SECOND
    return FailedJob(new_id(), tenant, task, JobState.FAILED, at, kind, message, reason)


def test_failures_are_grouped_with_their_first_and_last_time() -> None:
    rows = [
        trouble("no 3", 3, tenant="b"),
        trouble("other", 2),
        trouble("no 1", 1),
        trouble(None, 0, reason="crash_loop"),
    ]
    first, *rest = error_groups(rows, 10)
    assert (first.count, first.tenants, first.message, first.example) == (2, 2, "no 3", rows[0].id)
    assert (first.first_at, first.last_at) == (NOW + SECOND, NOW + 3 * SECOND)
    assert [(group.count, group.type, group.message) for group in rest] == [
        (1, "ValueError", "other"),
        (1, None, "crash_loop"),
    ]
    assert error_groups(rows, 1) == [first]


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
