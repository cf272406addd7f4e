"""Sets of days and times of day, searchable without listing them.

Days are counted since 1970-01-01, times in seconds since midnight. This module is independent of zones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import date
from typing import Protocol

from tidemill.domain.calendar import Exclude
from tidemill.domain.zones import date_of, day_of

HORIZON_MONTHS = 12 * 10
"""How far a search goes before it gives up."""
_HORIZON_DAYS = 366 * 10
_FIRST_YEAR, _LAST_YEAR = 1800, 9890


class DayRule(Protocol):
    """The days of a month on which a trigger fires, sorted."""

    def days_of(self, year: int, month: int) -> Sequence[int]: ...


class Times(Protocol):
    """The times of day at which a trigger fires, in order and numbered from 0."""

    @property
    def total(self) -> int: ...

    def rank(self, second: int) -> int:
        """The number of times before this second of the day."""
        ...

    def nth(self, number: int) -> int:
        """The time with that number."""
        ...


class ListedTimes:
    """A few times of day, listed."""

    __slots__ = ("_seconds", "total")

    def __init__(self, seconds: Sequence[int]) -> None:
        self._seconds = tuple(sorted(set(seconds)))
        self.total = len(self._seconds)

    def rank(self, second: int) -> int:
        return bisect_left(self._seconds, second)

    def nth(self, number: int) -> int:
        return self._seconds[number]


class ProductTimes:
    """The product of hours, minutes and seconds: up to 86,400 times without a list of them."""

    __slots__ = ("_hours", "_minutes", "_seconds", "total")

    def __init__(self, hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> None:
        self._hours, self._minutes, self._seconds = sorted(hours), sorted(minutes), sorted(seconds)
        self.total = len(hours) * len(minutes) * len(seconds)

    def rank(self, second: int) -> int:
        hour, rest = divmod(second, 3600)
        minute, second = divmod(rest, 60)
        per_minute = len(self._seconds)
        per_hour = len(self._minutes) * per_minute
        hours = bisect_left(self._hours, hour)
        below = hours * per_hour
        if hours == len(self._hours) or self._hours[hours] != hour:
            return below
        minutes = bisect_left(self._minutes, minute)
        below += minutes * per_minute
        if minutes == len(self._minutes) or self._minutes[minutes] != minute:
            return below
        return below + bisect_left(self._seconds, second)

    def nth(self, number: int) -> int:
        number, second = divmod(number, len(self._seconds))
        hour, minute = divmod(number, len(self._minutes))
        return self._hours[hour] * 3600 + self._minutes[minute] * 60 + self._seconds[second]


class DaySet:
    """The days of a rule, after an exclusion removed or moved some."""

    __slots__ = ("_exclude", "_rule")

    def __init__(self, rule: DayRule, exclude: Exclude | None) -> None:
        self._rule = rule
        self._exclude = exclude

    def first_from(self, day: int) -> int | None:
        """The first day of the set on or after ``day``; None if there is none for years."""
        exclude = self._exclude
        if exclude is None:
            return self._plain_from(day)
        if exclude.roll == "none":
            return self._kept_from(day, exclude)
        start = day
        if exclude.roll == "next":
            # Days of the excluded run just before move to its end, which may be here.
            while start > day - 366 and exclude.covers(date_of(start - 1)):
                start -= 1
        else:
            # Days of an excluded run that begins here move to before it.
            start = self._open_from(day, exclude)
        return self._moved_from(start, day, exclude)

    def last_to(self, day: int) -> int | None:
        """The last day of the set on or before ``day``; None if there is none for years."""
        exclude = self._exclude
        if exclude is None:
            return self._plain_to(day)
        if exclude.roll == "none":
            return self._kept_to(day, exclude)
        end = day
        if exclude.roll == "previous":
            while end < day + 366 and exclude.covers(date_of(end + 1)):
                end += 1
        else:
            end = self._open_to(day, exclude)
        return self._moved_to(end, day, exclude)

    def count(self, first: int, last: int) -> int:
        """The number of days of the set between the two, both included."""
        counted = 0
        day = self.first_from(first)
        while day is not None and day <= last:
            counted += 1
            day = self.first_from(day + 1)
        return counted

    def _plain_from(self, day: int) -> int | None:
        there = date_of(day)
        year, month, least = there.year, there.month, there.day
        for _ in range(HORIZON_MONTHS + 1):
            if year > _LAST_YEAR:
                return None
            days = self._rule.days_of(year, month)
            place = bisect_left(days, least)
            if place < len(days):
                return day_of(date(year, month, days[place]))
            least = 1
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
        return None

    def _plain_to(self, day: int) -> int | None:
        there = date_of(day)
        year, month, most = there.year, there.month, there.day
        for _ in range(HORIZON_MONTHS + 1):
            if year < _FIRST_YEAR:
                return None
            days = self._rule.days_of(year, month)
            place = bisect_right(days, most)
            if place:
                return day_of(date(year, month, days[place - 1]))
            most = 31
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
        return None

    def _kept_from(self, day: int, exclude: Exclude) -> int | None:
        there = self._plain_from(day)
        while there is not None and exclude.covers(date_of(there)):
            there = self._plain_from(there + 1) if there - day < _HORIZON_DAYS else None
        return there

    def _kept_to(self, day: int, exclude: Exclude) -> int | None:
        there = self._plain_to(day)
        while there is not None and exclude.covers(date_of(there)):
            there = self._plain_to(there - 1) if day - there < _HORIZON_DAYS else None
        return there

    @staticmethod
    def _open_from(day: int, exclude: Exclude) -> int:
        end = day + _HORIZON_DAYS
        while day < end and exclude.covers(date_of(day)):
            day += 1
        return day

    @staticmethod
    def _open_to(day: int, exclude: Exclude) -> int:
        end = day - _HORIZON_DAYS
        while day > end and exclude.covers(date_of(day)):
            day -= 1
        return day

    def _moved_from(self, start: int, least: int, exclude: Exclude) -> int | None:
        there = self._plain_from(start)
        while there is not None:
            moved = exclude.moved(date_of(there))
            if moved is not None and day_of(moved) >= least:
                return day_of(moved)
            there = self._plain_from(there + 1) if there - start < _HORIZON_DAYS else None
        return None

    def _moved_to(self, end: int, most: int, exclude: Exclude) -> int | None:
        there = self._plain_to(end)
        while there is not None:
            moved = exclude.moved(date_of(there))
            if moved is not None and day_of(moved) <= most:
                return day_of(moved)
            there = self._plain_to(there - 1) if end - there < _HORIZON_DAYS else None
        return None


class WallSet:
    """Days × times: the wall times at which a trigger fires."""

    __slots__ = ("_days", "_times")

    def __init__(self, days: DaySet, times: Times) -> None:
        self._days = days
        self._times = times

    def first_from(self, wall: int) -> int | None:
        """The first wall time of the set at or after ``wall``."""
        day, second = divmod(wall, 86_400)
        there = self._days.first_from(day)
        if there == day:
            number = self._times.rank(second)
            if number < self._times.total:
                return day * 86_400 + self._times.nth(number)
            there = self._days.first_from(day + 1)
        return None if there is None else there * 86_400 + self._times.nth(0)

    def last_to(self, wall: int) -> int | None:
        """The last wall time of the set at or before ``wall``."""
        day, second = divmod(wall, 86_400)
        there = self._days.last_to(day)
        if there == day:
            number = self._times.rank(second + 1)
            if number:
                return day * 86_400 + self._times.nth(number - 1)
            there = self._days.last_to(day - 1)
        return None if there is None else there * 86_400 + self._times.nth(self._times.total - 1)

    def count(self, first: int, last: int) -> int:
        """The number of wall times between the two, both included; the cost grows with the days, not the seconds."""
        if first > last:
            return 0
        first_day, first_second = divmod(first, 86_400)
        last_day, last_second = divmod(last, 86_400)
        counted = self._days.count(first_day, last_day) * self._times.total
        if self._days.first_from(first_day) == first_day:
            counted -= self._times.rank(first_second)
        if self._days.first_from(last_day) == last_day:
            counted -= self._times.total - self._times.rank(last_second + 1)
        return counted
