"""Business calendars, and the exclusion of days from triggers.

A ``BusinessCalendar`` is a set of weekend days and a set of holidays. An ``Exclude`` removes days from any trigger, by
date, by weekday or by the rest days of a calendar, and either skips a fire on such a day or rolls it to a neighbouring day.
Both are plain values; the caller provides the holidays (from a package, a file or the network).
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Literal, cast

from tidemill.domain.ical import read_ical
from tidemill.errors import BadSchedule

__all__ = ["BusinessCalendar", "Excludable", "Exclude", "Roll", "as_exclude", "read_ical", "read_weekdays"]

Roll = Literal["none", "next", "previous"]
ROLLS = ("none", "next", "previous")
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LONG = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_ONE_DAY = timedelta(days=1)
_FURTHEST = 366
"""How many days a roll searches for a day that is not excluded."""


def read_weekdays(given: str | Iterable[str], field: str = "days") -> tuple[int, ...]:
    """Weekdays by name, Monday is 0, sorted: ``"mon,fri"``, ``"mon-fri"``, ``["Saturday", "Sunday"]``.

    >>> read_weekdays("sat, mon-wed")
    (0, 1, 2, 5)
    """
    if not isinstance(given, Iterable):
        raise _no_weekday(given, field)
    terms = given.split(",") if isinstance(given, str) else list(given)
    found: set[int] = set()
    for term in terms:
        if not isinstance(term, str):
            raise _no_weekday(term, field)
        ends = [_weekday(name, field) for name in term.split("-")] if term.strip() else []
        if len(ends) > 2:
            raise _no_weekday(term, field)
        if ends:
            # A range may run over the end of the week: "sat-mon" is Saturday, Sunday and Monday.
            found.update((ends[0] + step) % 7 for step in range((ends[-1] - ends[0]) % 7 + 1))
    return tuple(sorted(found))


def weekday_text(days: Iterable[int]) -> str:
    """The stored short form of weekdays: ``"mon,fri"``."""
    return ",".join(WEEKDAYS[day] for day in days)


def _weekday(name: str, field: str) -> int:
    plain = name.strip().lower()
    for names in (WEEKDAYS, _LONG):
        if plain in names:
            return names.index(plain)
    raise _no_weekday(name, field)


def _no_weekday(term: object, field: str) -> BadSchedule:
    return BadSchedule(
        f"{field}: {term!r} is not a weekday; use names such as 'mon,fri' or 'mon-fri'",
        field=field,
        value=term,
    )


@dataclass(frozen=True, slots=True)
class BusinessCalendar:
    """Business days are all days that are neither on the weekend nor a holiday.

    ``holidays`` may be any container of dates; to be stored, it must be a set (or a list) of dates.

    >>> year_end = BusinessCalendar(holidays={date(2026, 12, 25), date(2027, 1, 1)})
    >>> year_end.is_business_day(date(2026, 12, 25)), year_end.roll(date(2026, 12, 25), "next")
    (False, datetime.date(2026, 12, 28))
    """

    weekend: str | Collection[str] = "sat,sun"
    holidays: Container[date] = frozenset()
    name: str = ""

    def __post_init__(self) -> None:
        weekend = read_weekdays(self.weekend, "weekend")
        if len(weekend) == 7:
            raise BadSchedule(
                "weekend: a calendar whose weekend is the whole week has no business days",
                field="weekend",
                value=self.weekend,
            )
        if not isinstance(self.name, str):
            raise BadSchedule(f"name: {self.name!r} is not a text", field="name", value=self.name)
        object.__setattr__(self, "weekend", weekday_text(weekend))
        object.__setattr__(self, "holidays", _dates(self.holidays, "holidays"))

    def is_business_day(self, day: date) -> bool:
        """Whether the day is a business day."""
        return WEEKDAYS[day.weekday()] not in self.weekend and day not in self.holidays

    def business_days(self, year: int, month: int) -> tuple[date, ...]:
        """The business days of one month, in order."""
        days = (date(year, month, day) for day in range(1, monthrange(year, month)[1] + 1))
        return tuple(day for day in days if self.is_business_day(day))

    def roll(self, day: date, to: Roll) -> date | None:
        """The day itself if it is a business day, else the nearest one in that direction; None if there is none."""
        return _rolled(day, to, lambda value: not self.is_business_day(value))

    def to_data(self) -> dict[str, object]:
        """The calendar as plain data."""
        return {
            "format": 1,
            "weekend": self.weekend,
            "holidays": _stored(self.holidays, "holidays"),
            "name": self.name,
        }

    @staticmethod
    def from_data(data: Mapping[str, object]) -> BusinessCalendar:
        """A calendar from plain data."""
        _check_format(data, "calendar", "business calendar")
        return BusinessCalendar(
            weekend=str(data.get("weekend", "")),
            holidays=_read_stored(data.get("holidays", ()), "holidays"),
            name=str(data.get("name", "")),
        )


@dataclass(frozen=True, slots=True)
class Exclude:
    """Days on which a trigger does not fire: ``dates``, ``weekdays``, and the days ``calendar`` does not count.

    ``roll`` decides about a fire on such a day: "none" skips it, "next" and "previous" move it to the nearest day that is
    not excluded, at the same time of day.
    """

    dates: Container[date] = frozenset()
    weekdays: str | Collection[str] = ""
    calendar: BusinessCalendar | None = None
    roll: Roll = "none"

    def __post_init__(self) -> None:
        weekdays = read_weekdays(self.weekdays, "weekdays")
        if len(weekdays) == 7:
            raise BadSchedule(
                "weekdays: with all seven weekdays excluded nothing ever fires",
                field="weekdays",
                value=self.weekdays,
            )
        check_roll(self.roll)
        check_calendar(self.calendar)
        object.__setattr__(self, "weekdays", weekday_text(weekdays))
        object.__setattr__(self, "dates", _dates(self.dates, "dates"))

    def covers(self, day: date) -> bool:
        """Whether the day is excluded."""
        if WEEKDAYS[day.weekday()] in self.weekdays or day in self.dates:
            return True
        return self.calendar is not None and not self.calendar.is_business_day(day)

    def moved(self, day: date) -> date | None:
        """The day to which a fire on this day moves: the same day, another one, or None if it is skipped."""
        return _rolled(day, self.roll, self.covers)

    def to_data(self) -> dict[str, object]:
        """The exclusion as plain data."""
        return {
            "format": 1,
            "dates": _stored(self.dates, "dates"),
            "weekdays": self.weekdays,
            "calendar": self.calendar.to_data() if self.calendar is not None else None,
            "roll": self.roll,
        }

    @staticmethod
    def from_data(data: Mapping[str, object]) -> Exclude:
        """An exclusion from plain data."""
        _check_format(data, "exclude", "exclusion")
        calendar = data.get("calendar")
        return Exclude(
            dates=_read_stored(data.get("dates", ()), "dates"),
            weekdays=str(data.get("weekdays", "")),
            calendar=None
            if calendar is None
            else BusinessCalendar.from_data(cast("Mapping[str, object]", calendar)),
            roll=cast(Roll, data.get("roll", "none")),
        )


Excludable = Exclude | BusinessCalendar | str | Container[date]
"""Accepted forms of an exclusion: a rule, a calendar (its rest days), weekday names, or a container of dates."""


def as_exclude(given: Excludable | None) -> Exclude | None:
    """Any accepted form as one rule. Forms without a roll rule skip their days."""
    match given:
        case None | Exclude():
            return given
        case BusinessCalendar():
            return Exclude(calendar=given)
        case str():
            return Exclude(weekdays=given)
        case _:
            return Exclude(dates=given)


def check_roll(roll: str) -> None:
    """Refuse an unknown roll rule."""
    if roll not in ROLLS:
        raise BadSchedule(
            f"roll: {roll!r} is not a roll rule; expected one of {', '.join(ROLLS)}", field="roll", value=roll
        )


def check_calendar(calendar: object) -> None:
    """Refuse a value that is not a business calendar; None passes."""
    if calendar is not None and not isinstance(calendar, BusinessCalendar):
        raise BadSchedule(
            f"calendar: {calendar!r} is not a business calendar; give BusinessCalendar(weekend=…, holidays=…)",
            field="calendar",
            value=calendar,
        )


def _rolled(day: date, to: Roll, falls_out: Callable[[date], bool]) -> date | None:
    step = {"none": 0, "next": 1, "previous": -1}[to]
    for distance in range(_FURTHEST if step else 1):
        there = day + distance * step * _ONE_DAY
        if not falls_out(there):
            return there
    return None


def _dates(given: object, field: str) -> Container[date]:
    """A frozen set if the dates can be listed; other containers may be infinite and are returned unchanged."""
    if isinstance(given, set | frozenset | list | tuple):
        for value in given:
            if not isinstance(value, date) or isinstance(value, datetime):
                raise BadSchedule(f"{field}: {value!r} is not a date", field=field, value=value)
        return frozenset(given)
    if isinstance(given, str | bytes) or not isinstance(given, Container):
        raise BadSchedule(
            f"{field}: {given!r} is not a container of dates; give a set of them", field=field, value=given
        )
    return given


def _stored(days: Container[date], field: str) -> list[str]:
    if not isinstance(days, frozenset):
        raise BadSchedule(
            f"{field}: a {type(days).__name__} cannot be stored, because its dates cannot be listed; give a set of dates",
            field=field,
        )
    return sorted(day.isoformat() for day in days)


def _read_stored(given: object, field: str) -> frozenset[date]:
    try:
        return frozenset(date.fromisoformat(str(value)) for value in cast("Iterable[object]", given))
    except (TypeError, ValueError):
        raise BadSchedule(
            f"{field}: {given!r} is not a stored list of dates such as '2026-12-25'",
            field=field,
            value=given,
        ) from None


def _check_format(data: object, field: str, what: str) -> None:
    if not isinstance(data, Mapping):
        raise BadSchedule(f"{field}: {data!r} is not a stored {what}", field=field, value=data)
    if data.get("format") != 1:
        raise BadSchedule(
            f"{field}: this version cannot read a stored {what} of format {data.get('format')!r}",
            field=field,
            value=data,
        )
