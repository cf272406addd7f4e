"""The wall clock of one zone, sampled every quarter of an hour and at changes.

It shares no code with the code under test. It relies only on zoneinfo's conversion of an instant to a local time. Instants and
wall times are seconds since 1970-01-01; a day is the number of days since then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

DAY, MINUTE = 86_400, 60
_QUARTER = 900
_MARGIN = 70 * DAY
_EPOCH = date(1970, 1, 1)
_SECOND = timedelta(seconds=1)

ODD_ZONES: dict[str, int] = {
    "Europe/Berlin": 2024,
    "America/New_York": 2024,
    "Australia/Lord_Howe": 2024,  # a change of half an hour
    "Pacific/Apia": 2006,  # no 30 December 2011
    "Africa/Casablanca": 2026,  # an hour less in Ramadan
    "Europe/Dublin": 2020,  # winter time is the exception
    "Antarctica/Troll": 2018,  # two hours
    "America/Havana": 2018,  # at midnight, and back to midnight
    "Asia/Gaza": 2019,  # at odd hours, on odd days
    "America/Sao_Paulo": 2010,  # midnight does not exist; abolished in 2019
    "Pacific/Chatham": 2024,  # at 02:45
    "Africa/El_Aaiun": 2017,
    "Antarctica/Casey": 2009,  # three hours, many times
    "America/St_Johns": 2006,  # until 2011 at one minute past midnight
    "Asia/Pyongyang": 2011,  # half an hour in 2015, and back in 2018
    "America/Caracas": 2007,  # half an hour in 2007 and 2016
    "Atlantic/Azores": 2024,  # around midnight
    "America/Santiago": 2016,  # at midnight, by rules that changed
    "Africa/Cairo": 2014,  # abolished and reintroduced
    "Asia/Kathmandu": 2024,  # 5:45, without changes
    "Pacific/Fakaofo": 2006,  # across the date line
    "Asia/Tehran": 2014,  # at midnight, abolished in 2022
    "Asia/Beirut": 2020,
    "Asia/Amman": 2016,
    "America/Scoresbysund": 2020,
    "America/Nuuk": 2019,
    "America/Asuncion": 2018,
    "Pacific/Easter": 2024,
    "Pacific/Norfolk": 2014,
    "Pacific/Tongatapu": 2012,
    "Europe/Istanbul": 2010,
    "Europe/Volgograd": 2012,
    "Europe/Moscow": 2008,
    "Africa/Sao_Tome": 2012,
    "Africa/Windhoek": 2010,
    "Asia/Ulaanbaatar": 2010,
    "Asia/Jerusalem": 2024,
    "Australia/Sydney": 2024,
    "America/Miquelon": 2024,
    "UTC": 2024,
    "Pacific/Kiritimati": 1990,  # no 31 December 1994
    "Pacific/Kwajalein": 1989,  # no 21 August 1993
    "Europe/London": 2024,
    "Asia/Kolkata": 2024,
    "Antarctica/Vostok": 2016,
    "Asia/Damascus": 2014,
}
"""Zones with unusual clock changes, and the first of ten years that contain them."""


def day_number(when: date) -> int:
    """Return the days since 1970-01-01."""
    return (when - _EPOCH).days


class WallClock:
    """The times on the clock of a zone over a number of whole years."""

    def __init__(self, name: str, first_year: int, years: int) -> None:
        self.name = name
        self.zone = ZoneInfo(name)
        self.start = day_number(date(first_year, 1, 1)) * DAY
        self.end = day_number(date(first_year + years, 1, 1)) * DAY
        self.changes = tuple(self._changes())
        self.first_day = self.start // DAY - 3
        self.last_day = self.end // DAY + 3
        self._shown: dict[int, list[tuple[int, int]]] = {}  # odd day: wall minutes and instants, in order
        self._first: dict[int, int] = {}  # wall minute of an odd day: when it is first shown
        for day in self._odd_days():
            self._sample(day)
        self._offset = {
            day: self._offset_at_noon(day)
            for day in range(self.first_day, self.last_day + 1)
            if day not in self._shown
        }

    def is_odd(self, day: int) -> bool:
        """Return whether the clocks change on that local day, or the day does not exist."""
        return day in self._shown

    def offset(self, day: int) -> int:
        """Return the one offset of a day that is not odd."""
        return self._offset[day]

    def once(self, day: int, times: Iterable[int]) -> Iterator[int]:
        """Yield instants of wall times that fire once: when first shown, or right after the gap that skips them."""
        if day not in self._shown:
            base = day * DAY - self._offset[day]
            yield from (base + second for second in times)
            return
        for second in times:
            minute = day * 1440 + second // MINUTE
            at = self._first.get(minute)
            if at is not None:
                yield at + second % MINUTE
                continue
            while minute not in self._first:
                minute += 1
            yield self._first[minute]

    def whenever(self, day: int, times: Mapping[int, Sequence[int]]) -> Iterator[int]:
        """Yield instants at which the clock shows one of the times, given as seconds by minute of the day."""
        if day not in self._shown:
            base = day * DAY - self._offset[day]
            yield from (
                base + minute * MINUTE + second for minute, several in times.items() for second in several
            )
            return
        for wall, at in self._shown[day]:
            yield from (at + second for second in times.get(wall % 1440, ()))

    def day_at(self, instant: int) -> date:
        """Return the local day of an instant."""
        return datetime.fromtimestamp(instant, self.zone).date()

    def pieces(self, day: int) -> list[tuple[int, int]]:
        """Return the spans of real time, end excluded, in which that local day is shown."""
        if day not in self._shown:
            start = day * DAY - self._offset[day]
            return [(start, start + DAY)]
        spans: list[tuple[int, int]] = []
        for _, at in self._shown[day]:
            if spans and spans[-1][1] == at:
                spans[-1] = (spans[-1][0], at + MINUTE)
            else:
                spans.append((at, at + MINUTE))
        return spans

    def _offset_seconds(self, instant: int) -> int:
        shift = datetime.fromtimestamp(instant, self.zone).utcoffset()
        assert shift is not None
        return shift // _SECOND

    def _offset_at_noon(self, day: int) -> int:
        noon = datetime.fromtimestamp(day * DAY, UTC).replace(hour=12, tzinfo=self.zone)
        shift = noon.utcoffset()
        assert shift is not None
        return shift // _SECOND

    def _changes(self) -> Iterator[tuple[int, int, int]]:
        """Yield when the offset changes, and both offsets."""
        before = self._offset_seconds(self.start - _MARGIN)
        for probe in range(self.start - _MARGIN + _QUARTER, self.end + _MARGIN, _QUARTER):
            after = self._offset_seconds(probe)
            if after != before:
                at = next(
                    second
                    for second in range(probe - _QUARTER, probe + 1, MINUTE)
                    if self._offset_seconds(second) != before
                )
                # Days are sampled by minute, so a change must be at the beginning of one.
                assert self._offset_seconds(at - 1) == before
                assert before % MINUTE == 0
                assert after % MINUTE == 0
                yield at, before, after
                before = after

    def _odd_days(self) -> list[int]:
        days: set[int] = set()
        for at, before, after in self.changes:
            if self.first_day - 3 <= at // DAY <= self.last_day + 3:
                touched = sorted(((at + before) // DAY, (at + after) // DAY))
                days.update(range(touched[0], touched[1] + 1))
        return sorted(days)

    def _sample(self, day: int) -> None:
        shown = self._shown[day] = []
        for at in range(day * DAY - 27 * 3600, (day + 1) * DAY + 27 * 3600, MINUTE):
            wall = at + self._offset_seconds(at)
            if wall // DAY == day:
                shown.append((wall // MINUTE, at))
                self._first.setdefault(wall // MINUTE, at)
