"""Tests of business days, excluded days and iCalendar holidays."""

from __future__ import annotations

import json
from calendar import monthrange
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.domain.calendar import BusinessCalendar, Exclude, Roll, as_exclude, read_ical
from tidemill.domain.schedule_rules import Cron, Daily, Every, Monthly, MonthlyBusinessDay, Once
from tidemill.errors import BadSchedule

XMAS = BusinessCalendar(holidays={date(2026, 12, 25), date(2027, 1, 1)}, name="short")
ONE = timedelta(days=1)

days = st.dates(date(2020, 1, 1), date(2030, 1, 1))
calendars = st.builds(
    BusinessCalendar,
    st.sampled_from(["sat,sun", "fri,sat", "sun", "", "tue-sun"]),
    st.sets(st.dates(date(2024, 1, 1), date(2024, 12, 31)), max_size=30),
    st.text(max_size=5),
)
rolls: st.SearchStrategy[Roll] = st.sampled_from(["none", "next", "previous"])


class NoFridays:
    """An endless container of dates."""

    def __contains__(self, day: object) -> bool:
        return isinstance(day, date) and day.weekday() == 4


def dates(
    trigger: MonthlyBusinessDay, after: str, n: int, calendar: BusinessCalendar | None = None
) -> list[str]:
    start = datetime.fromisoformat(after).replace(tzinfo=UTC)
    return [f"{fire:%Y-%m-%d}" for fire in trigger.preview(n, start, calendar=calendar)]


def test_the_tenth_business_day_skips_weekends_and_holidays() -> None:
    trigger = MonthlyBusinessDay(10, "18:00")
    assert dates(trigger, "2026-01-01", 3) == ["2026-01-14", "2026-02-13", "2026-03-13"]
    closed = BusinessCalendar(holidays={date(2026, 1, 1), date(2026, 1, 6)})
    assert dates(trigger, "2026-01-01", 1, closed) == ["2026-01-16"]


@pytest.mark.parametrize(
    ("n", "roll", "expected"),
    [
        (23, "previous", ["2026-01-30", "2026-02-27", "2026-03-31", "2026-04-30"]),
        (23, "next", ["2026-02-02", "2026-03-02", "2026-04-01", "2026-05-01"]),
        (23, "none", ["2026-07-31", "2026-12-31", "2027-03-31", "2027-12-31"]),
        (-1, "previous", ["2026-01-30", "2026-02-27", "2026-03-31", "2026-04-30"]),
        (-23, "next", ["2026-02-02", "2026-03-02", "2026-04-01", "2026-05-01"]),
        (-23, "previous", ["2026-01-30", "2026-02-27", "2026-03-31", "2026-04-30"]),
    ],
)
def test_a_month_with_too_few_business_days_follows_the_roll_rule(
    n: int, roll: Roll, expected: list[str]
) -> None:
    assert dates(MonthlyBusinessDay(n, "18:00", roll=roll), "2026-01-02", 4) == expected


def test_a_roll_passes_months_without_a_business_day() -> None:
    march = {date(2026, 3, day) for day in range(1, 32)}
    closed = BusinessCalendar(holidays=march)
    # February has 20 business days: its 21st comes after March, and so does that of March.
    assert dates(MonthlyBusinessDay(21, "18:00", roll="next"), "2026-02-01", 2, closed) == [
        "2026-04-01",
        "2026-04-29",
    ]
    long = BusinessCalendar(holidays=march | {date(2026, 4, day) for day in range(1, 31)})
    fires = dates(MonthlyBusinessDay(21, "18:00", roll="next"), "2026-02-01", 2, long)
    assert fires == ["2026-05-01", "2026-05-29"]
    back = dates(MonthlyBusinessDay(-21, "18:00", roll="previous"), "2026-02-27", 3, long)
    assert back == ["2026-02-27", "2026-05-01", "2026-06-02"]


@settings(max_examples=60)
@given(st.integers(-23, 23).filter(bool), calendars, st.integers(2023, 2025), st.integers(1, 12), rolls)
def test_the_nth_business_day_matches_a_count(
    n: int, calendar: BusinessCalendar, year: int, month: int, roll: Roll
) -> None:
    length = monthrange(year, month)[1]
    ordered = [date(year, month, day) for day in range(1, length + 1)]
    working = [day for day in (ordered if n > 0 else ordered[::-1]) if calendar.is_business_day(day)]
    after = datetime(year, month, 1, tzinfo=UTC) - timedelta(seconds=1)
    until = datetime(year, month, length, 23, 59, tzinfo=UTC)
    fires = MonthlyBusinessDay(n, "18:00", roll=roll).between(after, until, calendar=calendar)
    fired = [fire.date() for fire in fires]
    if len(working) >= abs(n):
        assert working[abs(n) - 1] in fired
    elif roll == "none":
        assert fired == []
    assert all(calendar.is_business_day(day) for day in fired)


@given(calendars, days, rolls)
def test_a_roll_stops_at_the_nearest_business_day(calendar: BusinessCalendar, day: date, roll: Roll) -> None:
    there = calendar.roll(day, roll)
    if calendar.is_business_day(day):
        assert there == day
    elif roll == "none":
        assert there is None
    else:
        assert there is not None
        assert calendar.is_business_day(there)
        step = ONE if there > day else -ONE
        assert (there > day) == (roll == "next")
        while day != there:
            assert not calendar.is_business_day(day)
            day += step


@given(calendars, st.sets(days, max_size=4), st.sampled_from(["", "sat,sun", "mon"]), rolls)
def test_calendars_and_exclusions_round_trip(
    calendar: BusinessCalendar, some: set[date], weekdays: str, roll: Roll
) -> None:
    assert BusinessCalendar.from_data(json.loads(json.dumps(calendar.to_data()))) == calendar
    rule = Exclude(some, weekdays, calendar, roll)
    assert Exclude.from_data(json.loads(json.dumps(rule.to_data()))) == rule


def test_only_a_set_of_holidays_can_be_stored() -> None:
    endless = BusinessCalendar(holidays=NoFridays())
    assert endless.roll(date(2026, 3, 27), "next") == date(2026, 3, 30)
    with pytest.raises(BadSchedule, match="cannot be stored"):
        endless.to_data()


def test_days_can_be_excluded_by_date_weekday_or_calendar() -> None:
    start = datetime(2026, 12, 24, 12, tzinfo=UTC)
    excluded: list[tuple[Any, list[int]]] = [
        (None, [25, 26, 27, 28]),
        ({date(2026, 12, 26)}, [25, 27, 28, 29]),
        ("sat,sun", [25, 28, 29, 30]),
        (XMAS, [28, 29, 30, 31]),
        (NoFridays(), [26, 27, 28, 29]),
        (Exclude(dates={date(2026, 12, 28)}, weekdays="sun", calendar=XMAS), [29, 30, 31, 4]),
    ]
    for exclude, expected in excluded:
        fires = Daily("06:00").preview(4, start, exclude=exclude)
        assert [fire.day for fire in fires] == expected
        fires = Cron("0 6 * * *").preview(4, start, exclude=exclude)
        assert [fire.day for fire in fires] == expected
        fires = Every(ONE, start.replace(hour=6)).preview(4, start, exclude=exclude)
        assert [fire.day for fire in fires] == expected


def test_an_excluded_fire_can_be_rolled_to_a_business_day() -> None:
    salaries = Monthly(25, "09:00")
    start = datetime(2026, 12, 1, tzinfo=UTC)
    earlier = salaries.next_after(start, exclude=Exclude(calendar=XMAS, roll="previous"))
    later = salaries.next_after(start, exclude=Exclude(calendar=XMAS, roll="next"))
    assert earlier == datetime(2026, 12, 24, 9, tzinfo=UTC)
    assert later == datetime(2026, 12, 28, 9, tzinfo=UTC)


def test_fires_rolled_to_one_day_are_merged() -> None:
    rule = Exclude(weekdays="sat,sun", roll="next")
    fires = Daily("06:00").preview(7, datetime(2026, 3, 27, 12, tzinfo=UTC), exclude=rule)
    assert [fire.day for fire in fires] == [30, 31, 1, 2, 3, 6, 7]


def test_a_single_fire_is_skipped_or_rolled_like_any_other() -> None:
    sunday = datetime(2026, 3, 29, 12, tzinfo=UTC)
    start = sunday - 9 * ONE
    assert Once(sunday).next_after(start, exclude="sun") is None
    assert Once(sunday).next_after(start, exclude="sat") == sunday
    moved = Once(sunday).next_after(start, "Europe/Berlin", exclude=Exclude(weekdays="sun", roll="previous"))
    # The wall time is the same, and on Saturday the clocks had not changed yet.
    assert moved == datetime(2026, 3, 28, 13, tzinfo=UTC)


def test_every_form_of_exclusion_becomes_a_rule() -> None:
    assert as_exclude(None) is None
    assert as_exclude("sat") == Exclude(weekdays="sat")
    assert as_exclude([date(2026, 1, 1)]) == Exclude(dates={date(2026, 1, 1)})
    assert as_exclude(XMAS) == Exclude(calendar=XMAS)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: BusinessCalendar("mon-sun"), "weekend"),
        (lambda: BusinessCalendar("samstag"), "weekend"),
        (lambda: BusinessCalendar(holidays={"2026-01-01"}), "holidays"),  # type: ignore[arg-type]
        (lambda: BusinessCalendar(holidays={datetime(2026, 1, 1, tzinfo=UTC)}), "holidays"),
        (lambda: BusinessCalendar(holidays=5), "holidays"),  # type: ignore[arg-type]
        (lambda: Exclude(weekdays="mon-sun"), "weekdays"),
        (lambda: Exclude(dates="2026-01-01"), "dates"),  # type: ignore[arg-type]
        (lambda: Exclude(roll="back"), "roll"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_calendar_is_refused(make: Any, field: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        make()
    assert caught.value.details["field"] == field


# ------------------------------------------------------------------------------------------------ iCalendar


def ical(*events: str) -> str:
    body = "".join(f"BEGIN:VEVENT\r\n{event}\r\nEND:VEVENT\r\n" for event in events)
    return f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{body}END:VCALENDAR\r\n"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("DTSTART;VALUE=DATE:20261225", ["2026-12-25"]),
        ("DTSTART;VALUE=DATE:20261225\r\nDTEND;VALUE=DATE:20261227", ["2026-12-25", "2026-12-26"]),
        ("DTSTART;VALUE=DATE:20261225\r\nDURATION:P2D", ["2026-12-25", "2026-12-26"]),
        ("DTSTART;VALUE=DATE:20261225\r\nDURATION:+P1W", [f"2026-12-{day}" for day in range(25, 32)]),
        ("DTSTART:20261225T000000\r\nDURATION:PT48H", ["2026-12-25", "2026-12-26"]),
        ("DTSTART:20261225T000000\r\nDURATION:P1DT12H", ["2026-12-25", "2026-12-26"]),
        ("DTSTART:20261224T140000\r\nDURATION:PT10H", ["2026-12-24"]),
        ("DTSTART:20261224T140000\r\nDURATION:PT10H1S", ["2026-12-24", "2026-12-25"]),
        ("DTSTART:20261225T000000Z\r\nDTEND:20261226T000000Z", ["2026-12-25"]),
        ('DTSTART;TZID="GMT+01:00":20261225T000000', ["2026-12-25"]),
        ("DTSTART;VALUE=DATE:99991231", ["9999-12-31"]),
        ("DTSTART;TZID=Europe/Berlin:20261224T140000\r\nDTEND:20261225T100000", ["2026-12-24", "2026-12-25"]),
        ("DTSTART;VALUE=DATE:20261225\r\nSUMMARY:Christmas\\, the first\r\n  day of it", ["2026-12-25"]),
        ("DTSTART;VALUE=DATE:2026\r\n 1225", ["2026-12-25"]),
        ("DTSTART:20261225\r\nSTATUS:CANCELLED", []),
        ("DTSTART:20260101\r\nRRULE:FREQ=YEARLY;COUNT=2", ["2026-01-01", "2027-01-01"]),
        ("DTSTART:20260101\r\nRRULE:FREQ=YEARLY;UNTIL=20280101;INTERVAL=2", ["2026-01-01", "2028-01-01"]),
        ("DTSTART:20280229\r\nRRULE:FREQ=YEARLY", ["2028-02-29"]),
        ("DTSTART:20260101\r\nRRULE:FREQ=YEARLY;BYMONTH=1;BYMONTHDAY=1\r\nEXDATE:20270101", ["2026-01-01", "2028-01-01", "2029-01-01", "2030-01-01"]),
        ("DTSTART:20260101\r\nRDATE:20260202,20260303", ["2026-01-01", "2026-02-02", "2026-03-03"]),
        ("DTSTART:20260101\r\nBEGIN:VALARM\r\nDTSTART:20260909\r\nEND:VALARM", ["2026-01-01"]),
    ],
)  # fmt: skip
def test_the_days_of_an_event_are_read(event: str, expected: list[str]) -> None:
    assert sorted(day.isoformat() for day in read_ical(ical(event), through=2030)) == expected


def test_a_recurrence_override_replaces_its_day() -> None:
    series = "UID:a\r\nDTSTART:20260101\r\nRRULE:FREQ=YEARLY;COUNT=4"
    moved = "UID:a\r\nRECURRENCE-ID;VALUE=DATE:20270101\r\nDTSTART:20270104"
    kept = "UID:a\r\nRECURRENCE-ID:20280101\r\nDTSTART:20280101\r\nDTEND:20280103"
    cancelled = "UID:a\r\nRECURRENCE-ID:20290101\r\nDTSTART:20290101\r\nSTATUS:CANCELLED"
    another = "UID:b\r\nDTSTART:20290101"
    days = [date(2026, 1, 1), date(2027, 1, 4), date(2028, 1, 1), date(2028, 1, 2)]
    assert sorted(read_ical(ical(series, moved, kept, cancelled))) == days
    assert sorted(read_ical(ical(cancelled, kept, moved, series, another))) == [*days, date(2029, 1, 1)]


def test_only_events_are_read() -> None:
    text = ical("DTSTART:20260101", "DTSTART:20260501").replace("\r\n", "\n")
    assert read_ical(text) == {date(2026, 1, 1), date(2026, 5, 1)}
    assert read_ical("\ufeff" + ical()) == frozenset()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not an iCalendar text"),
        ("<html></html>", "not an iCalendar text"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20260101", "ends inside VEVENT"),
        (ical("SUMMARY:Nothing"), "no DTSTART"),
        (ical("DTSTART:20261301"), "not a date"),
        (ical("DTSTART:tomorrow"), "not a date"),
        (ical("DTSTART:20260101\r\nDTEND:20250101"), "covers"),
        (ical("DTSTART:20260101\r\nDURATION:always"), "DURATION"),
        (ical("DTSTART:20260101\r\nDURATION:P"), "DURATION"),
        (ical("DTSTART:20260101\r\nDURATION:PT"), "DURATION"),
        (ical("DTSTART:20260101\r\nDURATION:P999999999W"), "covers"),
        (ical(f"DTSTART:20260101\r\nDURATION:P{'9' * 5000}D"), "DURATION"),
        (ical("DTSTART:99991231\r\nDURATION:P2D"), "ends after the year 9999"),
        (
            ical("UID:a\r\nRECURRENCE-ID;RANGE=THISANDFUTURE:20270101\r\nDTSTART:20270102"),
            "list the dates instead",
        ),
        (ical("SUMMARY:Thanks\r\nDTSTART:20261126\r\nRRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH"), "'Thanks'"),
        (ical("DTSTART:20261126\r\nRRULE:FREQ=WEEKLY"), "list the dates instead"),
        (ical("DTSTART:20261126\r\nRRULE:FREQ=YEARLY;INTERVAL=0"), "list the dates instead"),
        (ical(f"DTSTART:20261126\r\nRRULE:FREQ=YEARLY;COUNT={'9' * 5000}"), "list the dates instead"),
    ],
)
def test_unreadable_text_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BadSchedule, match=why):
        read_ical(text)


def test_an_invalid_last_year_is_refused() -> None:
    with pytest.raises(BadSchedule, match="through: 10000 is not a year"):
        read_ical(ical("DTSTART:20260101"), through=10_000)
