"""Tests of single triggers: validation, fires and explanations."""

from __future__ import annotations

import contextlib
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any

import pytest

from tidemill.clock import ManualClock, SystemClock
from tidemill.domain.schedule_rules import (
    Cron,
    Daily,
    Every,
    Manual,
    Monthly,
    MonthlyBusinessDay,
    Once,
    Trigger,
    Weekly,
    trigger_from_data,
)
from tidemill.errors import BadSchedule, UsageError

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)

WORDS = [
    (Cron("* * * * *"), "Every minute"),
    (Cron("*/5 * * * *"), "Every 5 minutes"),
    (Cron("*/7 * * * *"), "At minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour"),
    (Cron("0 * * * *"), "Every hour"),
    (Cron("@hourly"), "Every hour"),
    (Cron("15 * * * *"), "At minute 15 of every hour"),
    (Cron("0 2 * * *"), "At 02:00 every day"),
    (Cron("0 */6 * * *"), "At 00:00, 06:00, 12:00 and 18:00 every day"),
    (Cron("0 */2 * * *"), "Every 2 hours"),
    (Cron("*/15 9-17 * * 1-5"), "Every 15 minutes from 09:00 to 17:45 on Monday to Friday"),
    (Cron("0-30 9-17 * * *"), "At minutes 0 to 30 of hours 9 to 17 every day"),
    (Cron("@yearly"), "At 00:00 on the 1st of January"),
    (Cron("@monthly"), "At 00:00 on the 1st of the month"),
    (Cron("@weekly"), "At 00:00 on Sunday"),
    (Cron("0 0 * * 0-7"), "At 00:00 on any day of the week"),
    (Cron("@midnight"), "At 00:00 every day"),
    (Cron("0 9 * * sat-sun"), "At 09:00 on Saturday and Sunday"),
    (Cron("0 9 * * MON#2"), "At 09:00 on the 2nd Monday of the month"),
    (Cron("0 9 * * FRIL"), "At 09:00 on the last Friday of the month"),
    (Cron("0 9 L * *"), "At 09:00 on the last day of the month"),
    (Cron("0 9 LW JAN-MAR *"), "At 09:00 on the last weekday of January to March"),
    (Cron("0 9 15W * *"), "At 09:00 on the weekday nearest the 15th of the month"),
    (Cron("0 9 13 * FRI"), "At 09:00 on the 13th of the month or on Friday"),
    (Cron("0 9 1-7 * */2"), "At 09:00 on the 1st to the 7th of the month if it is Tuesday, Thursday, Saturday or Sunday"),
    (Cron("0 9 */2 * *"), "At 09:00 on every 2nd day from the 1st of the month"),
    (Cron("0 9 * 6,7,8 *"), "At 09:00 every day in June to August"),
    (Cron("* * * * * *"), "Every second"),
    (Cron("*/10 * * * * *"), "Every 10 seconds"),
    (Cron("30 * * * * *"), "At second 30 of every minute"),
    (Cron("15 30 2 * * *"), "At 02:30:15 every day"),
    (Every(timedelta(minutes=5)), "Every 5 minutes"),
    (Every(timedelta(hours=1)), "Every hour"),
    (Every(timedelta(days=14)), "Every 2 weeks"),
    (Every(timedelta(seconds=1.5)), "Every 1.5 seconds"),
    (Every(timedelta(hours=36), anchor=NOON), "Every 1 day and 12 hours from 2026-03-28 12:00 UTC on"),
    (Daily("6:00"), "At 06:00 every day"),
    (Daily(["18:30", time(6)]), "At 06:00 and 18:30 every day"),
    (Weekly("mon,fri", "09:00"), "At 09:00 on Monday and Friday"),
    (Monthly(), "At 00:00 on the 1st of every month"),
    (Monthly("last", "23:00"), "At 23:00 on the last day of every month"),
    (Monthly(-2), "At 00:00 on the 2nd last day of every month"),
    (Monthly(31), "At 00:00 on the 31st of every month, or the last day of a month that is too short"),
    (MonthlyBusinessDay(10, "18:00"), "At 18:00 on the 10th business day of every month, or the previous business day where a month has fewer"),
    (MonthlyBusinessDay(-1, "18:00", roll="none"), "At 18:00 on the last business day of every month; a month with fewer is left out"),
    (Once(NOON), "Once, at 2026-03-28 12:00 UTC"),
    (Manual(), "Only when triggered manually"),
]  # fmt: skip


@pytest.mark.parametrize(("trigger", "words"), WORDS, ids=[words for _, words in WORDS])
def test_a_trigger_explains_itself(trigger: Trigger, words: str) -> None:
    assert trigger.explain() == words


REFUSED: list[tuple[Any, str, str]] = [
    (lambda: Cron("61 * * * *"), "minute", "takes 0 to 59"),
    (lambda: Cron("* 24 * * *"), "hour", "takes 0 to 23"),
    (lambda: Cron("0 0 0 * *"), "day-of-month", "takes 1 to 31"),
    (lambda: Cron("0 0 32W * *"), "day-of-month", "takes 1 to 31"),
    (lambda: Cron("0 0 1 13 *"), "month", "takes 1 to 12"),
    (lambda: Cron("0 0 * * 8"), "day-of-week", "takes 0 to 7"),
    (lambda: Cron("0 0 * * MON#6"), "day-of-week", "takes 0 to 7"),
    (lambda: Cron("60 0 0 * * *"), "second", "takes 0 to 59"),
    (lambda: Cron("*/0 * * * *"), "minute", "steps"),
    (lambda: Cron("30 2 31 2 *"), "day-of-month", "never fires: month 2 has no day 31"),
    (lambda: Cron("0 0 31 4,6,9,11 *"), "day-of-month", "never fires"),
    (lambda: Cron("0 0 31W FEB *"), "day-of-month", "never fires"),
    (lambda: Cron("0 0 * 2 MON#5"), "day-of-month", "28 years"),
    (lambda: Cron("* * * *"), "expression", "has 4 fields"),
    (lambda: Cron("* * * * * * *"), "expression", "has 7 fields"),
    (lambda: Cron(""), "expression", "is not a cron expression"),
    (lambda: Cron("@reboot"), "expression", "expected one of @yearly"),
    (lambda: Cron("0," * 200 + "0 * * * *"), "expression", "is not a cron expression"),
    (lambda: Cron(None), "expression", "is not a cron expression"),  # type: ignore[arg-type]
    (lambda: Every(timedelta(minutes=-5)), "interval", "between one second and five years"),
    (lambda: Every(timedelta(0)), "interval", "between one second and five years"),
    (lambda: Every(timedelta(days=9999)), "interval", "between one second and five years"),
    (lambda: Every("often"), "interval", "is not a duration; give a timedelta, seconds, or text"),
    (lambda: Every(timedelta(hours=1), datetime(2026, 1, 1)), "anchor", "no time zone"),  # noqa: DTZ001
    (lambda: Daily("24:00"), "at", "is not a time of day"),
    (lambda: Daily("6"), "at", "is not a time of day"),
    (lambda: Daily([]), "at", "no time of day is given"),
    (lambda: Daily(6), "at", "is not a time of day"),  # type: ignore[arg-type]
    (lambda: Weekly("", "09:00"), "days", "no weekday"),
    (lambda: Weekly("mon,freitag", "09:00"), "days", "'freitag' is not a weekday"),
    (lambda: Monthly(0), "day", "is not a day of a month"),
    (lambda: Monthly(32), "day", "is not a day of a month"),
    (lambda: Monthly("first"), "day", "is not a day of a month"),
    (lambda: MonthlyBusinessDay(25, "18:00"), "n", "at most 23"),
    (lambda: MonthlyBusinessDay(0, "18:00"), "n", "at most 23"),
    (lambda: MonthlyBusinessDay(1, "18:00", roll="up"), "roll", "expected one of"),  # type: ignore[arg-type]
    (lambda: Once(datetime(2026, 1, 1)), "at", "no time zone"),  # noqa: DTZ001
    (lambda: Once(date(2026, 1, 1)), "at", "is not a date and time"),  # type: ignore[arg-type]
    (lambda: trigger_from_data({"format": 1, "kind": "lunar"}), "kind", "unknown kind 'lunar'"),
    (lambda: trigger_from_data({"kind": "cron"}), "format", "cannot be read"),
    (lambda: trigger_from_data({"format": 1, "kind": "cron"}), "expression", "needs 'expression'"),
    (
        lambda: trigger_from_data({"format": 1, "kind": "every", "seconds": "x"}),
        "seconds",
        "is not an interval",
    ),
    (lambda: trigger_from_data({"format": 1, "kind": "once", "at": "soon"}), "at", "is not a date and time"),
]


@pytest.mark.parametrize(("make", "field", "why"), REFUSED)
def test_invalid_triggers_are_refused_with_field_and_reason(make: Any, field: str, why: str) -> None:
    with pytest.raises(BadSchedule) as caught:
        make()
    assert caught.value.details["field"] == field
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    ["0 0 * 2 MON#5", "0 0 29 2 */2", "0 0 31W 2 *", "0 0 29 2 *", "0 0 1 1 *", "59 59 23 31 12 *"],
)
def test_an_expression_is_validated_quickly(expression: str) -> None:
    clock = SystemClock()
    best = 1.0
    # A different spelling each time, so that no cache applies.
    for spaces in range(1, 6):
        before = clock.monotonic()
        with contextlib.suppress(BadSchedule):
            Cron(expression.replace("0 0", f"0 {'0' * spaces}")).next_after(NOON, "Europe/Berlin")
        best = min(best, clock.monotonic() - before)
    assert best < 0.1


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 15W * *", ["2026-02-16", "2026-03-16", "2026-04-15", "2026-05-15", "2026-06-15", "2026-07-15", "2026-08-14"]),
        ("0 0 1W * *", ["2026-02-02", "2026-03-02", "2026-04-01", "2026-05-01", "2026-06-01", "2026-07-01", "2026-08-03"]),
        ("0 0 31W * *", ["2026-03-31", "2026-05-29", "2026-07-31", "2026-08-31"]),
        ("0 0 LW * *", ["2026-02-27", "2026-03-31", "2026-04-30", "2026-05-29", "2026-06-30", "2026-07-31", "2026-08-31"]),
        ("0 0 * * 1#5", ["2026-03-30", "2026-06-29", "2026-08-31"]),
        ("0 0 29 2 *", ["2028-02-29"]),
        ("0 0 5-5/2 * *", ["2026-02-05", "2026-03-05", "2026-04-05", "2026-05-05", "2026-06-05", "2026-07-05", "2026-08-05"]),
    ],
)  # fmt: skip
def test_special_days_of_cron(expression: str, expected: list[str]) -> None:
    fires = Cron(expression).preview(len(expected), datetime(2026, 1, 31, 12, tzinfo=UTC))
    assert [fire.date().isoformat() for fire in fires] == expected


def test_a_leap_day_is_found_across_a_common_century_year() -> None:
    fire = Cron("0 0 29 2 *").next_after(datetime(2096, 3, 1, tzinfo=UTC))
    assert fire == datetime(2104, 2, 29, tzinfo=UTC)


def test_a_day_31_falls_on_the_last_day_of_a_short_month() -> None:
    fires = Monthly(31, "06:00").preview(4, datetime(2027, 1, 31, tzinfo=UTC))
    assert [fire.day for fire in fires] == [31, 28, 31, 30]


def test_an_interval_without_an_anchor_is_stable() -> None:
    trigger = Every(timedelta(hours=6))
    assert [fire.hour for fire in trigger.preview(4, NOON)] == [18, 0, 6, 12]


def test_an_interval_begins_with_its_anchor() -> None:
    trigger = Every(timedelta(days=1), anchor=NOON.astimezone(timezone(timedelta(hours=5))))
    assert trigger.next_after(NOON - timedelta(days=9)) == NOON
    assert trigger.last_at_or_before(NOON - timedelta(seconds=1)) is None
    assert trigger.anchor == NOON


def test_fires_are_strictly_after_the_given_instant() -> None:
    six = datetime(2026, 1, 1, 6, tzinfo=UTC)
    assert Daily("06:00").next_after(six) == six + timedelta(days=1)
    assert Daily("06:00").next_after(six - timedelta(microseconds=1)) == six
    assert Daily("06:00").last_at_or_before(six) == six
    assert Once(six).next_after(six) is None


def test_manual_never_fires() -> None:
    assert Manual().next_after(NOON) is None
    assert Manual().preview(3, NOON) == []


def test_equivalent_rules_are_equal() -> None:
    assert Daily("6:00,18:00") == Daily([time(18), "06:00"]) == Daily("18:00, 06:00:00")
    assert Weekly("monday, friday", "9:00") == Weekly(["fri", "mon"], "09:00")
    assert Weekly("sat-mon", "9:00") == Weekly("mon,sat,sun", "9:00")
    assert Cron("0  2 * * *") == Cron("0 2 * * *")
    assert Monthly("last") == Monthly(-1)


def test_a_preview_without_an_instant_uses_the_present(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trigger, "present", None)
    with pytest.raises(UsageError, match="give after="):
        Daily("06:00").preview(1)
    monkeypatch.setattr(Trigger, "present", ManualClock(NOON).now)
    assert Daily("06:00").preview(1) == [datetime(2026, 3, 29, 6, tzinfo=UTC)]


def test_a_naive_instant_is_refused() -> None:
    with pytest.raises(UsageError, match="no time zone"):
        Daily("06:00").next_after(datetime(2026, 1, 1))  # noqa: DTZ001


def test_limit_and_newest_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="not both"):
        Daily("06:00").between(NOON, NOON, limit=1, newest=1)
