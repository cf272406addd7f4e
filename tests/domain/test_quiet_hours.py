"""Quiet hours in a time zone, over midnight and over changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.quiet_hours import read_quiet_hours
from tidemill.errors import BadSchedule, BadSettings

BERLIN = "22:00-07:00 Europe/Berlin"


@pytest.mark.parametrize(
    ("now", "ends"),
    [
        (datetime(2026, 7, 1, 19, 59, tzinfo=UTC), None),
        (datetime(2026, 7, 1, 20, 0, tzinfo=UTC), datetime(2026, 7, 2, 5, 0, tzinfo=UTC)),
        (datetime(2026, 7, 2, 4, 59, tzinfo=UTC), datetime(2026, 7, 2, 5, 0, tzinfo=UTC)),
        (datetime(2026, 7, 2, 5, 0, tzinfo=UTC), None),
        # The night in which the clock is set back has an hour more.
        (datetime(2026, 10, 24, 21, 0, tzinfo=UTC), datetime(2026, 10, 25, 6, 0, tzinfo=UTC)),
        # The night in which it is set forward has an hour less.
        (datetime(2026, 3, 28, 22, 0, tzinfo=UTC), datetime(2026, 3, 29, 5, 0, tzinfo=UTC)),
    ],
)
def test_quiet_hours_end_at_the_local_time(now: datetime, ends: datetime | None) -> None:
    assert read_quiet_hours(BERLIN).ends_at(now) == ends


@given(
    st.integers(0, 10 * 366 * 24 * 60).map(
        lambda minutes: datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    )
)
def test_the_end_is_in_the_future_and_not_quiet(now: datetime) -> None:
    for hours in (BERLIN, "12:00-13:30", "00:30-00:00 America/New_York"):
        quiet = read_quiet_hours(hours)
        ends = quiet.ends_at(now)
        if ends is not None:
            assert now < ends <= now + timedelta(hours=26)
            assert quiet.ends_at(ends) is None


@pytest.mark.parametrize("text", ["", "22-7", "25:00-07:00", "22:61-07:00", "07:00-07:00"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadSettings):
        read_quiet_hours(text)


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(BadSchedule, match="unknown time zone"):
        read_quiet_hours("22:00-07:00 Europe/Nowhere")
