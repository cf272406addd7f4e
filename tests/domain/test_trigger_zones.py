"""Tests of clock changes: missing hours, repeated hours and missing days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tidemill.domain.calendar import Exclude
from tidemill.domain.schedule_rules import Cron, Daily, Every, Monthly, Once, Trigger, Weekly
from tidemill.domain.zones import frontier, reached, span_at, wall_at, zone_of
from tidemill.errors import BadSchedule


def local(trigger: Trigger, zone: str, after: str, until: str) -> list[str]:
    """Return the fires between two local midnights, as local times with offsets."""
    here = ZoneInfo(zone)
    start = datetime.fromisoformat(after).replace(tzinfo=here) - timedelta(seconds=1)
    end = datetime.fromisoformat(until).replace(tzinfo=here)
    fires = trigger.between(start.astimezone(UTC), end.astimezone(UTC), zone)
    return [f"{fire.astimezone(here):%d %H:%M%z}" for fire in fires]


FIXED = [
    # Clocks jump over the time: it fires once, right after the gap.
    ("30 2 * * *", "Europe/Berlin", "2026-03-28", "2026-03-31", ["28 02:30+0100", "29 03:00+0200", "30 02:30+0200"]),
    ("30 2 * * *", "America/New_York", "2026-03-07", "2026-03-10", ["07 02:30-0500", "08 03:00-0400", "09 02:30-0400"]),
    ("0,30 2 * * *", "America/New_York", "2026-03-08", "2026-03-09", ["08 03:00-0400"]),
    ("0 2,3 * * *", "America/New_York", "2026-03-08", "2026-03-09", ["08 03:00-0400"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", "2026-10-05", ["04 02:30+1100"]),
    ("0 0 * * *", "America/Sao_Paulo", "2018-11-03", "2018-11-05", ["03 00:00-0300", "04 01:00-0200", "05 00:00-0200"]),
    ("30 2 * * *", "Africa/Casablanca", "2026-03-22", "2026-03-23", ["22 03:00+0100"]),
    ("30 1 * * *", "Europe/London", "2026-03-29", "2026-03-30", ["29 02:00+0100"]),
    # The time occurs twice: only the first occurrence fires.
    ("30 2 * * *", "Europe/Berlin", "2026-10-24", "2026-10-27", ["24 02:30+0200", "25 02:30+0200", "26 02:30+0100"]),
    ("30 1 * * *", "America/New_York", "2026-11-01", "2026-11-02", ["01 01:30-0400"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-05", "2026-04-06", ["05 01:45+1100"]),
    ("30 23 * * *", "America/Sao_Paulo", "2018-02-17", "2018-02-18", ["17 23:30-0200"]),
    # No clock change, but an odd offset.
    ("30 2 * * *", "Asia/Kolkata", "2026-03-29", "2026-03-31", ["29 02:30+0530", "30 02:30+0530"]),
    # A whole day is missing: its fire happens when the next day begins.
    ("0 6 * * *", "Pacific/Apia", "2011-12-29", "2012-01-01", ["29 06:00-1000", "31 00:00+1400", "31 06:00+1400"]),
    ("0 0 * * *", "Pacific/Apia", "2011-12-29", "2012-01-01", ["29 00:00-1000", "31 00:00+1400", "01 00:00+1400"]),
    # Seconds behave like minutes.
    ("15 30 2 * * *", "Europe/Berlin", "2026-03-29", "2026-03-30", ["29 03:00+0200"]),
]  # fmt: skip

RUNNING = [
    # A wildcard in a time field follows real time.
    ("0 * * * *", "Europe/Berlin", "2026-03-29T00:30", "2026-03-29T05:00", ["29 01:00+0100", "29 03:00+0200", "29 04:00+0200", "29 05:00+0200"]),
    ("0 * * * *", "Europe/Berlin", "2026-10-25T01:30", "2026-10-25T04:00", ["25 02:00+0200", "25 02:00+0100", "25 03:00+0100", "25 04:00+0100"]),
    ("*/30 * * * *", "Australia/Lord_Howe", "2026-04-05T01:00", "2026-04-05T02:30", ["05 01:00+1100", "05 01:30+1100", "05 01:30+1030", "05 02:00+1030", "05 02:30+1030"]),
    ("*/30 2 * * *", "America/New_York", "2026-03-08", "2026-03-09T03:00", ["09 02:00-0400", "09 02:30-0400"]),
    ("0 */2 * * *", "Europe/Berlin", "2026-10-25", "2026-10-25T05:00", ["25 00:00+0200", "25 02:00+0200", "25 02:00+0100", "25 04:00+0100"]),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "zone", "after", "until", "expected"), FIXED)
def test_a_fixed_time_fires_once_despite_clock_changes(
    expression: str, zone: str, after: str, until: str, expected: list[str]
) -> None:
    assert local(Cron(expression), zone, after, until) == expected


@pytest.mark.parametrize(("expression", "zone", "after", "until", "expected"), RUNNING)
def test_a_wildcard_follows_real_time(
    expression: str, zone: str, after: str, until: str, expected: list[str]
) -> None:
    assert local(Cron(expression), zone, after, until) == expected


@pytest.mark.parametrize(
    "trigger", [Daily("02:30"), Weekly("sun", "02:30"), Monthly(29, "02:30"), Cron("30 2 29 3 *")]
)
def test_every_calendar_trigger_fires_after_a_gap(trigger: Trigger) -> None:
    assert local(trigger, "Europe/Berlin", "2026-03-29", "2026-03-30") == ["29 03:00+0200"]


@pytest.mark.parametrize(
    "zone",
    [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Africa/Casablanca",
        "Asia/Gaza",
        "America/Havana",
    ],
)
def test_a_daily_trigger_fires_once_a_day_over_ten_years(zone: str) -> None:
    here = ZoneInfo(zone)
    start, end = datetime(2016, 1, 1, tzinfo=here), datetime(2026, 1, 1, tzinfo=here)
    days = (end.date() - start.date()).days
    for minute in (0, 15, 45):
        for hour in (0, 1, 2, 3):
            trigger = Daily(f"{hour:02d}:{minute:02d}")
            fires = trigger.between(start - timedelta(seconds=1), end - timedelta(seconds=1), zone)
            assert len({fire.astimezone(here).date() for fire in fires}) == len(fires) == days


def test_an_interval_ignores_zones() -> None:
    before = datetime(2026, 3, 28, 22, tzinfo=UTC)
    fires = Every(timedelta(hours=1)).between(before, before + timedelta(hours=5), "Europe/Berlin")
    assert fires == [before + timedelta(hours=n) for n in range(1, 6)]


def test_a_preview_shows_local_times() -> None:
    shown = Daily("06:00").preview(2, datetime(2026, 3, 28, tzinfo=UTC), "Europe/Berlin")
    assert [fire.isoformat() for fire in shown] == ["2026-03-28T06:00:00+01:00", "2026-03-29T06:00:00+02:00"]


def test_fires_of_a_repeated_hour_differ_as_instants() -> None:
    fires = Cron("30 * * * *").between(
        datetime(2026, 10, 25, 0, tzinfo=UTC), datetime(2026, 10, 25, 2, tzinfo=UTC), "Europe/Berlin"
    )
    assert fires == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)]


def test_changed_zone_rules_apply_at_once() -> None:
    at = datetime(2026, 7, 1, tzinfo=UTC)
    old = ZoneInfo("Europe/Berlin")
    with resources.files("tzdata").joinpath("zoneinfo", "Africa", "Cairo").open("rb") as rules:
        new = ZoneInfo.from_file(rules, key="Europe/Berlin")
    assert Daily("06:00").next_after(at, old) == datetime(2026, 7, 1, 4, tzinfo=UTC)
    assert Daily("06:00").next_after(at, new) == datetime(2026, 7, 1, 3, tzinfo=UTC)
    assert Daily("06:00").next_after(at, old) == datetime(2026, 7, 1, 4, tzinfo=UTC)


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../etc/passwd", "+02:00", "Europe", "\0", "UTC+2"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(BadSchedule, match="timezone: unknown time zone") as caught:
        Daily("06:00").next_after(datetime(2026, 1, 1, tzinfo=UTC), name)
    assert caught.value.details["field"] == "timezone"


def test_the_frontier_stands_still_while_an_hour_repeats() -> None:
    zone = zone_of("Europe/Berlin")
    change = int(datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp())
    assert span_at(zone, change).start == change
    assert wall_at(zone, change) == wall_at(zone, change - 3600)
    assert frontier(zone, change - 1) == frontier(zone, change) == frontier(zone, change + 3599)
    assert frontier(zone, change + 3600) == wall_at(zone, change + 3600)


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo"]
)
def test_a_wall_time_is_reached_when_first_shown_or_passed(zone: str) -> None:
    here = zone_of(zone)
    for year in (2011, 2018, 2026):
        start = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
        for instant in range(start, start + 365 * 86_400, 5 * 3600 + 1800):
            wall = wall_at(here, instant)
            first = reached(here, wall)
            assert first <= instant
            assert wall_at(here, first) >= wall
            assert frontier(here, first - 1) < wall <= frontier(here, first)


def test_a_search_ends_at_the_limits_of_the_calendar() -> None:
    far = datetime(9989, 12, 31, tzinfo=UTC)
    for trigger in (Cron("* * * * *"), Daily("06:00"), Every(timedelta(days=1))):
        assert trigger.next_after(far) is None
        assert trigger.last_at_or_before(datetime(2, 1, 1, tzinfo=UTC)) is None
    assert Once(far).next_after(datetime(2026, 1, 1, tzinfo=UTC)) == far


def test_a_preview_beyond_the_calendar_is_refused() -> None:
    start, last = datetime(2026, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert Once(last).preview(3, start) == [last]
    with pytest.raises(BadSchedule, match="beyond the calendar in Pacific/Kiritimati; use UTC"):
        Once(last).preview(3, start, "Pacific/Kiritimati")


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize(
    "exclude", ["sat", Exclude(weekdays="sat", roll="next"), Exclude(weekdays="sat", roll="previous")]
)
def test_exclusions_work_at_the_ends_of_the_calendar(zone: str, exclude: Any) -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert Once(last).next_after(first, zone, None, exclude) == last
    assert Once(first).last_at_or_before(last, zone, None, exclude) == first
    if exclude == "sat":
        hourly = Every(timedelta(hours=1), anchor=first)
        early, late = (
            hourly.next_after(first, zone, None, exclude),
            hourly.last_at_or_before(last, zone, None, exclude),
        )
        assert early is not None
        assert late is not None
        assert (early.year, late.year) == (1800, 9900)
        assert hourly.next_after(last, zone, None, exclude) is None
        assert hourly.last_at_or_before(first, zone, None, exclude) is None
        assert hourly.between(first, last, zone, None, exclude, limit=1) == [early]
        assert hourly.count_between(late, last, zone, None, exclude) == 0
