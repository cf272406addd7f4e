"""APScheduler's triggers ``cron``, ``interval`` and ``date`` as triggers of Tidemill."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from tidemill.domain.schedule_rules import Cron, Every, Once
from tidemill.domain.triggers.base import Trigger
from tidemill.errors import BadSchedule

_ORDER = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
_LEAST = {
    "year": "*",
    "month": "1",
    "day": "1",
    "week": "*",
    "day_of_week": "*",
    "hour": "0",
    "minute": "0",
    "second": "0",
}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_NTH = re.compile(r"(1st|2nd|3rd|4th|5th|last)\s+(mon|tue|wed|thu|fri|sat|sun)", re.IGNORECASE)
_NUMBERS = {"1st": "#1", "2nd": "#2", "3rd": "#3", "4th": "#4", "5th": "#5", "last": "L"}


def zone_name(timezone: Any) -> str:
    """The name of a time zone that APScheduler accepts: a text, or an object of zoneinfo or pytz."""
    if timezone is None:
        return "UTC"
    if isinstance(timezone, str):
        return timezone
    name = getattr(timezone, "key", None) or getattr(timezone, "zone", None)
    if name is None and timezone is UTC:
        return "UTC"
    if name is None:
        raise BadSchedule(
            f"timezone: {timezone!r} has no name; give a name such as 'Europe/Berlin'", field="timezone"
        )
    return str(name)


def _instant(value: Any, timezone: str, name: str) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise BadSchedule(f"{name}: {value!r} is not an ISO date", field=name) from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime):
        raise BadSchedule(f"{name}: {value!r} is not a date", field=name)
    return value if value.tzinfo is not None else value.replace(tzinfo=ZoneInfo(timezone))


def _refuse(trigger: str, **given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise BadSchedule(f"{trigger}: {name} is not supported; leave it out", field=name)


class DateTrigger:
    """Once, at ``run_date``; without one, at once."""

    def __init__(self, run_date: Any = None, timezone: tzinfo | str | None = None) -> None:
        self.timezone = zone_name(timezone)
        self.run_date = None if run_date is None else _instant(run_date, self.timezone, "run_date")

    def trigger(self, now: datetime) -> Trigger:
        """The trigger of Tidemill."""
        return Once(self.run_date or now)


class IntervalTrigger:
    """At ``start_date`` and at a fixed interval after it; without one, the first time is one interval from now."""

    def __init__(
        self,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        start_date: Any = None,
        end_date: Any = None,
        timezone: tzinfo | str | None = None,
        jitter: float | None = None,
    ) -> None:
        _refuse("interval", end_date=end_date, jitter=jitter)
        self.timezone = zone_name(timezone)
        self.interval = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        if not self.interval:
            self.interval = timedelta(seconds=1)
        self.start_date = None if start_date is None else _instant(start_date, self.timezone, "start_date")

    def trigger(self, now: datetime) -> Trigger:
        """The trigger of Tidemill."""
        return Every(self.interval, self.start_date or now + self.interval)


class CronTrigger:
    """At the times that match all fields. As in APScheduler, 0 is Monday, and fields after the last given one are 0.

    ``year`` and ``week`` are not supported. ``day`` together with ``day_of_week`` is supported in the form ``day="1st mon"``.
    """

    def __init__(
        self,
        year: Any = None,
        month: Any = None,
        day: Any = None,
        week: Any = None,
        day_of_week: Any = None,
        hour: Any = None,
        minute: Any = None,
        second: Any = None,
        start_date: Any = None,
        end_date: Any = None,
        timezone: tzinfo | str | None = None,
        jitter: float | None = None,
    ) -> None:
        years = None if year in (None, "*") else year
        weeks = None if week in (None, "*") else week
        _refuse("cron", year=years, week=weeks, start_date=start_date, end_date=end_date, jitter=jitter)
        self.timezone = zone_name(timezone)
        given = {
            name: str(value)
            for name, value in zip(
                _ORDER, (year, month, day, week, day_of_week, hour, minute, second), strict=True
            )
            if value is not None
        }
        self.expression = _expression(_filled(given))

    @classmethod
    def from_crontab(cls, expr: str, timezone: tzinfo | str | None = None) -> CronTrigger:
        """A trigger of a line of crontab. As in APScheduler, its weekdays count from Monday, which is 0."""
        fields = expr.split()
        if len(fields) != 5:
            raise ValueError(f"Wrong number of fields; got {len(fields)}, expected 5")
        minute, hour, day, month, weekday = fields
        return cls(minute=minute, hour=hour, day=day, month=month, day_of_week=weekday, timezone=timezone)

    def trigger(self, now: datetime) -> Trigger:
        """The trigger of Tidemill."""
        return Cron(self.expression)


def _filled(given: dict[str, str]) -> dict[str, str]:
    """The fields with their defaults: every value before the last given one, the least value after it."""
    if not given:
        raise BadSchedule("cron: give at least one field, such as hour=2", field="trigger")
    last = max(_ORDER.index(name) for name in given)
    return {name: given.get(name, _LEAST[name] if place > last else "*") for place, name in enumerate(_ORDER)}


def _expression(fields: dict[str, str]) -> str:
    day, weekday = fields["day"].strip().lower(), _weekdays(fields["day_of_week"])
    if nth := _NTH.fullmatch(day):
        if weekday != "*":
            raise _both_days()
        day, weekday = "*", nth[2].upper() + _NUMBERS[nth[1].lower()]
    elif day == "last":
        day = "L"
    if day != "*" and weekday != "*":
        raise _both_days()
    month = fields["month"]
    return " ".join((fields["second"], fields["minute"], fields["hour"], day, month, weekday))


def _both_days() -> BadSchedule:
    return BadSchedule(
        "cron with day and day_of_week: APScheduler fires if both match, cron and Tidemill if either does;"
        " write day='1st mon', or check the day in the function",
        field="day_of_week",
    )


def _weekdays(field: str) -> str:
    """A field of weekdays with names, because APScheduler counts from Monday and cron from Sunday."""
    parts = []
    for part in field.lower().split(","):
        values, slash, step = part.strip().partition("/")
        ends = [_weekday(value) for value in values.split("-")]
        parts.append("-".join(ends) + slash + step)
    return ",".join(parts)


def _weekday(value: str) -> str:
    if value == "*":
        return value
    if value.isdigit() and int(value) < len(_WEEKDAYS):
        return _WEEKDAYS[int(value)].upper()
    if value in _WEEKDAYS:
        return value.upper()
    raise BadSchedule(
        f"day_of_week: {value!r} is not a weekday; give 0 (Monday) to 6, or mon to sun", field="day_of_week"
    )


def trigger_of(
    trigger: Any, options: dict[str, Any], timezone: str
) -> CronTrigger | IntervalTrigger | DateTrigger:
    """The trigger of ``add_job``: an object, or ``"cron"``, ``"interval"`` or ``"date"`` with its options."""
    if isinstance(trigger, CronTrigger | IntervalTrigger | DateTrigger):
        return trigger
    kinds: dict[str | None, Any] = {
        "cron": CronTrigger,
        "interval": IntervalTrigger,
        "date": DateTrigger,
        None: DateTrigger,
    }
    if trigger not in kinds:
        raise BadSchedule(
            f"trigger: {trigger!r} is not supported; give 'cron', 'interval', 'date' or a trigger of"
            " tidemill.contrib.apscheduler",
            field="trigger",
        )
    made: CronTrigger | IntervalTrigger | DateTrigger = kinds[trigger](**{"timezone": timezone, **options})
    return made
