"""Calendar triggers: daily, weekly, monthly, and by business day.

All of them are wall times that fire once each: a time that the clocks skip fires right after the gap, a repeated one fires
at its first occurrence. Times of day are written "HH:MM" or "HH:MM:SS"; several are separated by commas, or given as a list.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from functools import lru_cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from tidemill.domain.calendar import BusinessCalendar, Exclude, Roll, check_roll, read_weekdays, weekday_text
from tidemill.domain.triggers.base import Trigger
from tidemill.domain.triggers.days import DayRule, DaySet, ListedTimes, WallSet
from tidemill.domain.triggers.timeline import FixedTimes, Timeline
from tidemill.domain.triggers.words import WEEKDAY_NAMES, clock_text, joined, named, ordinal
from tidemill.errors import BadSchedule

At = str | time | Sequence[str | time]

_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_MOST_BUSINESS_DAYS = 23
_PLAIN_WEEK = BusinessCalendar()


def _read_times(at: At) -> str:
    """Times of day in their normalised form."""
    given: Sequence[object] = (
        at.split(",") if isinstance(at, str) else at if isinstance(at, list | tuple) else [at]
    )
    seconds: set[int] = set()
    for value in given:
        if isinstance(value, time) and value.tzinfo is None and not value.microsecond:
            seconds.add(value.hour * 3600 + value.minute * 60 + value.second)
            continue
        match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise BadSchedule(
                f"at: {value!r} is not a time of day; write '06:00' or '06:00:30'", field="at", value=value
            )
        seconds.add(int(match[1]) * 3600 + int(match[2]) * 60 + int(match[3] or 0))
    if not seconds:
        raise BadSchedule("at: no time of day is given; write '06:00'", field="at", value=at)
    return ",".join(clock_text(second) for second in sorted(seconds))


@lru_cache(maxsize=1024)
def _times(at: str) -> ListedTimes:
    parts = (text.split(":") for text in at.split(","))
    return ListedTimes([int(h) * 3600 + int(m) * 60 + int(s[0] if s else 0) for h, m, *s in parts])


def _time_words(at: object) -> str:
    return f"At {joined(str(at).split(','))}"


class EveryDay(NamedTuple):
    """All days of every month."""

    def days_of(self, year: int, month: int) -> Sequence[int]:
        return range(1, monthrange(year, month)[1] + 1)


class SomeWeekdays(NamedTuple):
    """The days of every month that fall on certain weekdays."""

    weekdays: tuple[int, ...]

    def days_of(self, year: int, month: int) -> Sequence[int]:
        return _weekday_days(self.weekdays, *monthrange(year, month))


@lru_cache(maxsize=1024)
def _weekday_days(weekdays: tuple[int, ...], first_weekday: int, length: int) -> tuple[int, ...]:
    return tuple(day for day in range(1, length + 1) if (first_weekday + day - 1) % 7 in weekdays)


class MonthDay(NamedTuple):
    """One day of every month, counted from its beginning or its end, held within the month."""

    day: int

    def days_of(self, year: int, month: int) -> Sequence[int]:
        length = monthrange(year, month)[1]
        return (min(self.day, length) if self.day > 0 else max(length + 1 + self.day, 1),)


class BusinessDay(NamedTuple):
    """The n-th business day of every month, counted from its beginning or its end."""

    n: int
    roll: Roll
    calendar: BusinessCalendar

    def days_of(self, year: int, month: int) -> Sequence[int]:
        found = (self._day(*value) for value in ((year, month), *self._carriers(year, month)))
        return sorted(
            {day.day for day in found if day is not None and (day.year, day.month) == (year, month)}
        )

    def _carriers(self, year: int, month: int) -> Iterator[tuple[int, int]]:
        """The months whose day a roll may move into this one: the neighbour, and those behind it without a business day."""
        if self.roll == "none":
            return
        total, step = year * 12 + month - 1, -1 if self.roll == "next" else 1
        for distance in range(1, 13):
            there = (total + distance * step) // 12, (total + distance * step) % 12 + 1
            yield there
            if self.calendar.business_days(*there):
                return

    def _day(self, year: int, month: int) -> date | None:
        days = self.calendar.business_days(year, month)
        if abs(self.n) <= len(days):
            return days[self.n - 1 if self.n > 0 else self.n]
        if self.roll == "none":
            return None
        # The missing day lies beyond one end of the month, where the roll starts.
        length = monthrange(year, month)[1]
        last, first = date(year, month, length), date(year, month, 1)
        edge = (last, _next_day(last)) if self.n > 0 else (_day_before(first), first)
        return self.calendar.roll(edge[1] if self.roll == "next" else edge[0], self.roll)


def _next_day(day: date) -> date:
    return date.fromordinal(day.toordinal() + 1)


def _day_before(day: date) -> date:
    return date.fromordinal(day.toordinal() - 1)


class _WallTrigger(Trigger):
    """Base of the triggers in this module: days × times of day, each once."""

    __slots__ = ()

    def _rule(self, calendar: BusinessCalendar | None) -> DayRule:
        raise NotImplementedError

    def timeline(
        self, zone: ZoneInfo, calendar: BusinessCalendar | None, exclude: Exclude | None
    ) -> Timeline:
        days = DaySet(self._rule(calendar), exclude)
        return FixedTimes(WallSet(days, _times(str(self.fields()["at"]))), zone)


@dataclass(frozen=True, slots=True)
class Daily(_WallTrigger, kind="daily"):
    """Each day at one or several times: ``Daily("06:00")``, ``Daily("06:00, 18:30")``, ``Daily(["06:00", "18:30"])``."""

    at: At

    def __post_init__(self) -> None:
        object.__setattr__(self, "at", _read_times(self.at))

    def _rule(self, calendar: BusinessCalendar | None) -> DayRule:
        return EveryDay()

    def explain(self) -> str:
        return f"{_time_words(self.at)} every day"

    def fields(self) -> dict[str, object]:
        return {"at": self.at}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Daily:
        return cls(fields["at"])


@dataclass(frozen=True, slots=True)
class Weekly(_WallTrigger, kind="weekly"):
    """Certain weekdays: ``Weekly("mon,fri", "09:00")``, ``Weekly("mon-fri", "09:00,17:00")``."""

    days: str | Collection[str]
    at: At

    def __post_init__(self) -> None:
        days = read_weekdays(self.days)
        if not days:
            raise BadSchedule("days: no weekday is given; write 'mon,fri'", field="days", value=self.days)
        object.__setattr__(self, "days", weekday_text(days))
        object.__setattr__(self, "at", _read_times(self.at))

    def _rule(self, calendar: BusinessCalendar | None) -> DayRule:
        return SomeWeekdays(read_weekdays(self.days))

    def explain(self) -> str:
        return f"{_time_words(self.at)} on {named(read_weekdays(self.days), WEEKDAY_NAMES)}"

    def fields(self) -> dict[str, object]:
        return {"days": self.days, "at": self.at}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Weekly:
        return cls(fields["days"], fields["at"])


@dataclass(frozen=True, slots=True)
class Monthly(_WallTrigger, kind="monthly"):
    """Once in every month. ``day=-1`` or ``"last"`` is the last day, ``-2`` the one before it.

    A month that is too short fires on its last day (counted from the end: on its first), so that no month is skipped. To
    skip short months, use ``Cron("0 0 31 * *")``.
    """

    day: int | str = 1
    at: At = "00:00"

    def __post_init__(self) -> None:
        day = -1 if self.day == "last" else self.day
        if not isinstance(day, int) or isinstance(day, bool) or day == 0 or abs(day) > 31:
            raise BadSchedule(
                f"day: {self.day!r} is not a day of a month; give 1 to 31, -1 to -31 counted from the end, or 'last'",
                field="day",
                value=self.day,
            )
        object.__setattr__(self, "day", day)
        object.__setattr__(self, "at", _read_times(self.at))

    def _rule(self, calendar: BusinessCalendar | None) -> DayRule:
        return MonthDay(int(self.day))

    def explain(self) -> str:
        day = int(self.day)
        if day == -1:
            which = "the last day of every month"
        elif day < 0:
            which = f"the {ordinal(-day)} last day of every month"
        else:
            which = f"the {ordinal(day)} of every month"
        if abs(day) > 28:
            which += f", or the {'last' if day > 0 else 'first'} day of a month that is too short"
        return f"{_time_words(self.at)} on {which}"

    def fields(self) -> dict[str, object]:
        return {"day": self.day, "at": self.at}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Monthly:
        return cls(fields["day"], fields["at"])


@dataclass(frozen=True, slots=True)
class MonthlyBusinessDay(_WallTrigger, kind="monthly_business_day"):
    """The n-th business day of every month; ``-1`` is the last. Without a calendar, Monday to Friday are business days.

    In a month with too few business days ``roll`` decides: "previous" uses the last business day before the missing one (for
    a positive ``n`` the month's last), "next" the first one after it (the next month's first), "none" skips the month.
    """

    n: int
    at: At
    roll: Roll = "previous"

    def __post_init__(self) -> None:
        given: object = self.n
        if not isinstance(given, int) or given is True or not 1 <= abs(given) <= _MOST_BUSINESS_DAYS:
            raise BadSchedule(
                f"n: {self.n!r} is not a business day of a month, which has at most {_MOST_BUSINESS_DAYS};"
                f" give 1 to {_MOST_BUSINESS_DAYS}, or -1 to -{_MOST_BUSINESS_DAYS} counted from the end",
                field="n",
                value=self.n,
            )
        check_roll(self.roll)
        object.__setattr__(self, "at", _read_times(self.at))

    def _rule(self, calendar: BusinessCalendar | None) -> DayRule:
        return BusinessDay(self.n, self.roll, calendar if calendar is not None else _PLAIN_WEEK)

    def explain(self) -> str:
        if self.n == -1:
            which = "last"
        else:
            which = ordinal(self.n) if self.n > 0 else f"{ordinal(-self.n)} last"
        text = f"{_time_words(self.at)} on the {which} business day of every month"
        if self.roll == "none":
            return f"{text}; a month with fewer is left out"
        return f"{text}, or the {self.roll} business day where a month has fewer"

    def fields(self) -> dict[str, object]:
        return {"n": self.n, "at": self.at, "roll": self.roll}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> MonthlyBusinessDay:
        return cls(fields["n"], fields["at"], fields.get("roll", "previous"))
