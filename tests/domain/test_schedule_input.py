"""Tests of schedule input: accepted, or refused with field and reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.domain.calendar import BusinessCalendar, Exclude, as_exclude
from tidemill.domain.ical import read_ical
from tidemill.domain.schedule_rules import (
    All,
    Cron,
    Daily,
    Every,
    Monthly,
    MonthlyBusinessDay,
    Once,
    Weekly,
    check_misfire,
    check_overlap,
    first_fire,
    misfire_from_data,
    trigger_from_data,
)
from tidemill.domain.zones import zone_of
from tidemill.errors import BadSchedule

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)

TABLE: list[tuple[Callable[[Any], object], Any, str, str]] = [
    (Cron, "61 2 * * *", "minute", "the minute field '61' of '61 2 * * *' cannot be read"),
    (Cron, "* 2 * *", "expression", "has 4 fields"),
    (Cron, "30 2 31 2 *", "day-of-month", "never fires: month 2 has no day 31"),
    (Every, timedelta(minutes=-5), "interval", "is not between one second and five years"),
    (Every, "5 minutes", "interval", "is not a duration; give a timedelta, seconds, or text such as '10m'"),
    (Daily, "25:00", "at", "'25:00' is not a time of day"),
    (lambda days: Weekly(days, "09:00"), None, "days", "None is not a weekday"),
    (lambda days: Weekly(days, "09:00"), 5, "days", "5 is not a weekday"),
    (Monthly, 32, "day", "32 is not a day of a month"),
    (lambda n: MonthlyBusinessDay(n, "18:00"), 25, "n", "25 is not a business day of a month, which has at most 23"),
    (Once, "tomorrow", "at", "'tomorrow' is not a date and time; give an aware datetime, or text such as 2026-11-16T09:30:00+01:00"),
    (zone_of, "Europe/Atlantis", "timezone", "unknown time zone 'Europe/Atlantis'"),
    (zone_of, None, "timezone", "unknown time zone None"),
    (BusinessCalendar, "mon-sun", "weekend", "has no business days"),
    (BusinessCalendar, 5, "weekend", "5 is not a weekday"),
    (lambda days: BusinessCalendar(holidays=days), b"2026", "holidays", "is not a container of dates"),
    (lambda name: BusinessCalendar(name=name), 5, "name", "5 is not a text"),
    (lambda roll: Exclude(roll=roll), "sideways", "roll", "'sideways' is not a roll rule"),
    (lambda rest: Exclude(calendar=rest), "DE", "calendar", "'DE' is not a business calendar"),
    (lambda rest: first_fire(Daily("06:00"), NOON, calendar=rest), "DE", "calendar", "'DE' is not a business calendar"),
    (lambda out: first_fire(Weekly("mon", "06:00"), NOON, exclude=out), "mon", "trigger", "would never fire"),
    (BusinessCalendar.from_data, None, "calendar", "None is not a stored business calendar"),
    (BusinessCalendar.from_data, {"format": 2}, "calendar", "format 2"),
    (BusinessCalendar.from_data, {"format": 1, "holidays": ["soon"]}, "holidays", "is not a stored list of dates"),
    (Exclude.from_data, [], "exclude", "[] is not a stored exclusion"),
    (Exclude.from_data, {"format": 1, "dates": 5}, "dates", "is not a stored list of dates"),
    (Exclude.from_data, {"format": 1, "calendar": "DE"}, "calendar", "'DE' is not a stored business calendar"),
    (trigger_from_data, "0 2 * * *", "trigger", "'0 2 * * *' is not a stored trigger"),
    (trigger_from_data, {"format": 1, "kind": "every", "seconds": True}, "seconds", "True is not an interval"),
    (trigger_from_data, {"format": 1, "kind": "weekly", "days": 1, "at": "06:00"}, "days", "1 is not a weekday"),
    (read_ical, b"BEGIN:VCALENDAR", "holidays", "a bytes is not an iCalendar text"),
    (All, 0, "misfire", "is not between 1 and 100000"),
    (misfire_from_data, {"all": "many"}, "misfire", "is not between"),
    (check_misfire, "twice", "misfire", "'twice' is not a misfire rule"),
    (check_overlap, "wait", "overlap", "'wait' is not an overlap rule"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "given_value", "field", "why"), TABLE)
def test_bad_input_is_refused_with_its_field_and_the_reason(
    make: Callable[[Any], object], given_value: Any, field: str, why: str
) -> None:
    with pytest.raises(BadSchedule) as caught:
        make(given_value)
    assert caught.value.details["field"] == field
    assert why in str(caught.value)


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text("0123456789:*/,-#LWmonfri @T.Z+\0", max_size=12),
    st.binary(max_size=4),
    st.sampled_from(["0 2 * * *", "06:00", "mon-fri", "previous", "2026-01-01", "2026-01-01T00:00Z", 1, 5]),
    st.sampled_from([NOON, NOON.date(), timedelta(hours=1), date(2026, 1, 1)]),
)
given_things = st.recursive(
    anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)

CONSTRUCTORS: list[Callable[[Any], object]] = [
    Cron,
    Daily,
    Every,
    Once,
    Monthly,
    All,
    zone_of,
    as_exclude,
    check_misfire,
    check_overlap,
    misfire_from_data,
    read_ical,
    trigger_from_data,
    BusinessCalendar.from_data,
    Exclude.from_data,
    lambda value: Weekly(value, "06:00"),
    lambda value: Weekly("mon", value),
    lambda value: MonthlyBusinessDay(value, "06:00"),
    lambda value: MonthlyBusinessDay(1, "06:00", value),
    lambda value: Every(timedelta(days=1), value),
    BusinessCalendar,
    lambda value: BusinessCalendar(holidays=value),
    Exclude,
    lambda value: Exclude(weekdays=value),
    lambda value: Exclude(calendar=value),
    lambda value: Exclude(roll=value),
    lambda value: misfire_from_data({"all": value}),
]


def refusal_of(make: Callable[[Any], object], value: object) -> BadSchedule | None:
    """Return the refusal of a value, or None if it is accepted; any other error propagates."""
    try:
        make(value)
    except BadSchedule as refused:
        return refused
    return None


@settings(max_examples=60)
@given(given_things)
def test_any_value_is_accepted_or_refused_by_field(value: object) -> None:
    for make in CONSTRUCTORS:
        refused = refusal_of(make, value)
        assert refused is None or refused.details["field"]


STORED: dict[str, Mapping[str, object]] = {
    "cron": {"expression": "0 2 * * *"},
    "every": {"seconds": 60, "anchor": None},
    "daily": {"at": "06:00"},
    "weekly": {"days": "mon", "at": "06:00"},
    "monthly": {"day": 1, "at": "06:00"},
    "monthly_business_day": {"n": 1, "at": "06:00", "roll": "none"},
    "once": {"at": "2026-01-01T00:00:00+00:00"},
    "manual": {},
}


@settings(max_examples=60)
@given(st.sampled_from(sorted(STORED)), given_things, st.data())
def test_modified_stored_data_is_accepted_or_refused(kind: str, value: object, data: st.DataObject) -> None:
    whole = {"format": 1, "kind": kind, **STORED[kind]}
    assert refusal_of(trigger_from_data, whole) is None
    tampered = {**whole, data.draw(st.sampled_from(sorted(whole))): value}
    refused = refusal_of(trigger_from_data, tampered)
    assert refused is None or refused.details["field"]
    calendar = BusinessCalendar(holidays={NOON.date()}).to_data()
    exclude = Exclude({NOON.date()}, "sun", BusinessCalendar(), "next").to_data()
    for make, good in ((BusinessCalendar.from_data, calendar), (Exclude.from_data, exclude)):
        refused = refusal_of(make, {**good, data.draw(st.sampled_from(sorted(good))): value})
        assert refused is None or refused.details["field"]
