"""Cron expressions with five fields, or six with the seconds first.

``cronsim`` parses the fields and computes the matching days as Debian's cron does: if both day fields are given, either may
match; if one of them begins with a star, both must. This module adds ``@daily`` and similar macros, the nearest weekday
(``15W``), names in ``FRIL`` and ``SAT-SUN``, and the rules for clock changes.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.triggers.base import Trigger
from tidemill.domain.triggers.cron_words import cron_words
from tidemill.domain.triggers.days import DaySet, ProductTimes, WallSet
from tidemill.domain.triggers.timeline import FixedTimes, RunningTimes, Timeline
from tidemill.errors import BadSchedule

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_TAKES = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L (last day), LW (last weekday) or 15W (weekday nearest the 15th)",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7 (0 and 7 are Sunday) or SUN to SAT, MON#2 (second Monday), FRIL (last Friday)",
}
_LONGEST_TEXT = 255
_LONGEST_WAIT = 5 * 366
_ANY_DATE = datetime(2000, 1, 1)  # noqa: DTZ001 - cronsim wants a start; only its reading of the fields is used
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MONTHS = ("", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_ONE_OF_ONE = re.compile(r"(\w+)-(\w+)/[1-9]\d*")
_NEAREST = re.compile(r"([1-9]|[12]\d|3[01])W")


class Reading(NamedTuple):
    """A parsed expression."""

    fields: tuple[str, ...]
    sim: Any
    nearest: frozenset[int]
    """Days of the month of which the nearest weekday is used."""
    only_nearest: bool
    times: ProductTimes
    running: bool
    """Whether it follows real time: some time field begins with a star."""


class CronDays(NamedTuple):
    """The days that an expression matches."""

    expression: str
    months: frozenset[int]

    def days_of(self, year: int, month: int) -> tuple[int, ...]:
        return _month_days(self.expression, *monthrange(year, month)) if month in self.months else ()


@dataclass(frozen=True, slots=True)
class Cron(Trigger, kind="cron"):
    """A cron expression: minute, hour, day of month, month, day of week; six fields begin with the second.

    An expression whose second, minute or hour begins with a star follows real time: it fires whenever the local clock
    matches. Any other fires once for each of its times: in a gap right after it, in a repeated hour the first time.

    >>> Cron("0 2 * * *").explain()
    'At 02:00 every day'
    """

    expression: str

    def __post_init__(self) -> None:
        text: object = self.expression
        if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST_TEXT:
            raise BadSchedule(
                f"expression: {str(text)[:60]!r} is not a cron expression; write five or six fields, such as '0 2 * * *'",
                field="expression",
            )
        object.__setattr__(self, "expression", " ".join(text.split()))
        _check_fires(self.expression)

    def explain(self) -> str:
        reading = _read(self.expression)
        sim = reading.sim
        clock = (tuple(sorted(sim.hours)), tuple(sorted(sim.minutes)), tuple(sorted(sim.seconds)))
        return cron_words(clock, reading.fields[3:], both_days=sim.day_and)

    def fields(self) -> dict[str, object]:
        return {"expression": self.expression}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Cron:
        return cls(fields["expression"])

    def timeline(
        self, zone: ZoneInfo, calendar: BusinessCalendar | None, exclude: Exclude | None
    ) -> Timeline:
        reading = _read(self.expression)
        days = DaySet(CronDays(self.expression, frozenset(reading.sim.months)), exclude)
        walls = WallSet(days, reading.times)
        return RunningTimes(walls, zone) if reading.running else FixedTimes(walls, zone)


@lru_cache(maxsize=2048)
def _read(expression: str) -> Reading:
    text = expression
    if text.startswith("@"):
        if text.lower() not in MACROS:
            raise BadSchedule(
                f"expression: unknown macro {text!r}; expected one of {', '.join(MACROS)}",
                field="expression",
                value=text,
            )
        text = MACROS[text.lower()]
    fields = text.upper().split()
    if len(fields) not in (5, 6):
        raise BadSchedule(
            f"expression: {expression!r} has {len(fields)} fields; give five (minute, hour, day of month, month, day of"
            " week) or six (with the second first)",
            field="expression",
            value=expression,
        )
    if len(fields) == 5:
        fields.insert(0, "0")
    fields = [_respelt(place, field) for place, field in enumerate(fields)]
    terms = fields[3].split(",")
    nearest = [term for term in terms if _NEAREST.fullmatch(term)]
    others = ",".join(term for term in terms if term not in nearest)
    sim = _understood(expression, [*fields[:3], others or "1", *fields[4:]], fields)
    return Reading(
        fields=tuple(fields),
        sim=sim,
        nearest=frozenset(int(term[:-1]) for term in nearest),
        only_nearest=not others,
        times=ProductTimes(tuple(sim.hours), tuple(sim.minutes), tuple(sim.seconds)),
        running=any(field.startswith("*") for field in fields[:3]),
    )


def _respelt(place: int, field: str) -> str:
    """A field in the spelling that cronsim reads as intended."""
    terms = []
    for term in field.split(","):
        if place == 5:
            # A last weekday by name, and a week that ends on Sunday.
            if len(term) == 4 and term[:3] in _DAYS and term[3] == "L":
                term = f"{_DAYS.index(term[:3])}L"  # noqa: PLW2901 - the same term, spelt differently
            term = re.sub(r"-SUN\b", "-7", term)  # noqa: PLW2901
        # A range of one value stays one value; cronsim would take "5-5/2" for "5/2", which runs to the end.
        match = _ONE_OF_ONE.fullmatch(term)
        terms.append(match[1] if match and _number(match[1]) == _number(match[2]) else term)
    return ",".join(terms)


def _number(text: str) -> str:
    names = _DAYS if text in _DAYS else _MONTHS
    return str(names.index(text)) if text in names else text.lstrip("0") or "0"


def _understood(expression: str, fields: list[str], given: list[str]) -> Any:
    try:
        return CronSim(" ".join(fields), _ANY_DATE)
    except CronSimError as wrong:
        name = str(wrong).removeprefix("Bad ")
    place = FIELDS.index(name)
    if name == "day-of-month":
        try:
            CronSim(" ".join([*fields[:4], "*", fields[5]]), _ANY_DATE)
        except CronSimError:
            pass
        else:
            raise BadSchedule(
                f"expression: {expression!r} never fires: month {given[4]} has no day {given[3]}",
                field=name,
                value=given[3],
            )
    raise BadSchedule(
        f"expression: the {name} field {given[place]!r} of {expression!r} cannot be read; it takes {_TAKES[name]},"
        " ranges 'a-b', steps '*/n', lists 'a,b' and '*'",
        field=name,
        value=given[place],
    )


@lru_cache(maxsize=8192)
def _month_days(expression: str, first_weekday: int, length: int) -> tuple[int, ...]:
    """The matching days in a month with this first weekday and length; there are 28 such months."""
    reading = _read(expression)
    year, month = _month_like(first_weekday, length)
    nearest = {_nearest_weekday(day, first_weekday, length) for day in reading.nearest if day <= length}
    sim = reading.sim
    found = []
    for day in range(1, length + 1):
        there = date(year, month, day)
        in_month = day in nearest or (not reading.only_nearest and sim.match_dom(there))
        in_week = sim.match_dow(there)
        if (in_month and in_week) if sim.day_and else (in_month or in_week):
            found.append(day)
    return tuple(found)


@lru_cache(maxsize=32)
def _month_like(first_weekday: int, length: int) -> tuple[int, int]:
    months = ((year, month) for year in range(2000, 2028) for month in range(1, 13))
    return next(month for month in months if monthrange(*month) == (first_weekday, length))


def _nearest_weekday(day: int, first_weekday: int, length: int) -> int:
    """The weekday nearest a day within the same month: Friday for Saturday, Monday for Sunday, except at the month's edges."""
    weekday = (first_weekday + day - 1) % 7
    if weekday == 5:
        return day - 1 if day > 1 else day + 2
    if weekday == 6:
        return day + 1 if day < length else day - 2
    return day


@lru_cache(maxsize=2048)
def _check_fires(expression: str) -> None:
    """Refuse an expression with a gap of more than five years within the 28 years after which the calendar repeats."""
    rule = CronDays(expression, frozenset(_read(expression).sim.months))
    if all(_month_days(expression, weekday, length) for weekday in range(7) for length in (28, 29, 30, 31)):
        return
    months = [(year, month) for year in range(2000, 2056) for month in range(1, 13)]
    dates = [date(*month, days[0]) for month in months if (days := rule.days_of(*month))]
    if not dates:
        raise BadSchedule(
            f"expression: {expression!r} never fires: no year has a day that fits its day and month fields",
            field="day-of-month",
            value=expression,
        )
    for earlier, later in pairwise(dates):
        if (later - earlier).days > _LONGEST_WAIT:
            years = round((later - earlier).days / 365.25)
            raise BadSchedule(
                f"expression: {expression!r} would wait {years} years between fires, for example from {earlier} to"
                f" {later}; at most 5 years are allowed",
                field="day-of-month",
                value=expression,
            )
