"""Tests of the notes that explain clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tidemill.domain.clock_notes import clock_changes, fire_note
from tidemill.domain.schedule_rules import Cron, Daily, Every, Manual, Once
from tidemill.domain.triggers.base import Trigger

BERLIN = ZoneInfo("Europe/Berlin")
WINTER = datetime(2026, 1, 10, tzinfo=UTC)


def notes(trigger: Trigger, after: datetime, number: int, zone: ZoneInfo = BERLIN) -> list[str | None]:
    return [fire_note(trigger, at, zone) for at in trigger.preview(number, after, zone)]


@pytest.mark.parametrize(
    ("trigger", "march", "october"),
    [
        (
            Daily("02:30"),
            "02:30 does not exist on this day: it fires once, at 03:00",
            "02:30 comes twice on this day: it fires the first time only",
        ),
        (
            Cron("0,30 2 * * *"),
            "02:00 and 02:30 do not exist on this day: it fires once, at 03:00",
            "02:00 and 02:30 come twice on this day: it fires the first time only",
        ),
        (
            Cron("*/30 2 * * *"),
            "02:00 and 02:30 do not come on this day, and nothing fires",
            "02:00 and 02:30 come twice on this day, and it fires both times",
        ),
        (
            Cron("*/10 * * * *"),
            "02:00, 02:10, 02:20, 02:30 and others do not come on this day, and nothing fires",
            "02:00, 02:10, 02:20, 02:30 and others come twice on this day, and it fires both times",
        ),
        (Daily("06:00"), "none of its times is touched", "none of its times is touched"),
        (
            Every(timedelta(hours=1)),
            "it follows real time and is not affected",
            "it follows real time and is not affected",
        ),
    ],
)
def test_a_note_explains_the_effect_of_a_clock_change(trigger: Trigger, march: str, october: str) -> None:
    spring, autumn = clock_changes(trigger, WINTER, BERLIN)
    assert (spring.at.date().isoformat(), spring.before, spring.after) == ("2026-03-29", "02:00", "03:00")
    assert (autumn.at.date().isoformat(), autumn.before, autumn.after) == ("2026-10-25", "03:00", "02:00")
    assert (spring.words, autumn.words) == (march, october)
    assert spring.touches is autumn.touches is ("day" in march)


def test_a_zone_without_clock_changes_has_no_notes() -> None:
    assert clock_changes(Daily("02:30"), WINTER, ZoneInfo("UTC")) == []
    assert clock_changes(Daily("02:30"), WINTER, ZoneInfo("Asia/Tokyo")) == []


def test_clock_changes_are_bounded() -> None:
    soon = timedelta(days=60)
    assert clock_changes(Daily("02:30"), WINTER, BERLIN, within=soon) == []
    assert len(clock_changes(Daily("02:30"), WINTER, BERLIN, limit=1)) == 1


def test_a_skipped_time_is_noted_at_its_replacement() -> None:
    shown = notes(Daily("02:30"), datetime(2026, 3, 28, tzinfo=UTC), 3)
    assert shown == [
        None,
        "for 02:30, which does not exist on this day: the clocks go from 02:00 to 03:00",
        None,
    ]


def test_an_ordinary_fire_right_after_a_gap_has_no_note() -> None:
    assert notes(Daily("03:00"), datetime(2026, 3, 28, 12, tzinfo=UTC), 1) == [None]


def test_a_repeated_time_is_noted() -> None:
    saturday = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert notes(Daily("02:30"), saturday, 2) == [
        "02:30 comes twice on this day: this is the first and the only fire",
        None,
    ]
    assert notes(Cron("30 * * * *"), datetime(2026, 10, 24, 23, 40, tzinfo=UTC), 4) == [
        "02:30 comes twice on this day: this is the first, and it fires again",
        "02:30 comes twice on this day: this is the second",
        None,
        None,
    ]


def test_a_half_hour_change_is_noted() -> None:
    zone = ZoneInfo("Australia/Lord_Howe")
    change = clock_changes(Daily("02:15"), datetime(2026, 9, 1, tzinfo=UTC), zone, limit=1)[0]
    assert (change.before, change.after, change.touches) == ("02:00", "02:30", True)
    assert change.words == "02:15 does not exist on this day: it fires once, at 02:30"


@pytest.mark.parametrize(
    "trigger", [Once(datetime(2026, 3, 29, 1, tzinfo=UTC)), Manual(), Every(timedelta(hours=1))]
)
def test_real_time_triggers_have_no_note(trigger: Trigger) -> None:
    assert fire_note(trigger, datetime(2026, 3, 29, 1, tzinfo=UTC), BERLIN) is None
