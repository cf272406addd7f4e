"""An independent, slow reading of schedules, day by day and time by time.

It uses neither cronsim nor the triggers. A rule is evaluated on a ``WallClock``, which knows when its times occur.
"""

from __future__ import annotations

import calendar
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import lru_cache

from tests.domain.schedules.clocks import DAY, WallClock, day_number
from tests.domain.trigger_oracle import day_of_month_fits, day_of_week_fits, expand

MICRO = 1_000_000
ONE_DAY = timedelta(days=1)
WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_MACROS = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}

OfMonth = Callable[[int, int], Iterable[date]]
"""The days of a rule in a month; a roll may move a day into another month."""


@dataclass(frozen=True)
class Rest:
    """Non-working days."""

    weekend: tuple[str, ...] = ("sat", "sun")
    holidays: frozenset[date] = frozenset()

    def covers(self, day: date) -> bool:
        return WEEK[day.weekday()] in self.weekend or day in self.holidays


@dataclass(frozen=True)
class Outs:
    """Excluded days, and where their fires move."""

    weekdays: tuple[str, ...] = ()
    dates: frozenset[date] = frozenset()
    rest: Rest | None = None
    roll: str = "none"

    def covers(self, day: date) -> bool:
        named = WEEK[day.weekday()] in self.weekdays or day in self.dates
        return named or (self.rest is not None and self.rest.covers(day))

    def moved(self, day: date) -> date | None:
        step = {"none": None, "next": ONE_DAY, "previous": -ONE_DAY}[self.roll]
        while self.covers(day):
            if step is None:
                return None
            day += step
        return day


def days_of(year: int, month: int) -> list[date]:
    return [date(year, month, day) for day in range(1, calendar.monthrange(year, month)[1] + 1)]


def fitting(fits: Callable[[date], bool]) -> OfMonth:
    """Return a rule that is a predicate of the day."""
    return lambda year, month: [day for day in days_of(year, month) if fits(day)]


def month_day(n: int) -> OfMonth:
    """Return a rule for one day of each month, clamped to the month."""

    def of_month(year: int, month: int) -> list[date]:
        days = days_of(year, month)
        if n > 0:
            return [days[n - 1] if n <= len(days) else days[-1]]
        return [days[n] if -n <= len(days) else days[0]]

    return of_month


def business_day(n: int, roll: str, rest: Rest) -> OfMonth:
    """Return the n-th working day of each month; a missing one lies just outside the month."""

    def walk(day: date, step: timedelta) -> date:
        while rest.covers(day):
            day += step
        return day

    def of_month(year: int, month: int) -> list[date]:
        days = days_of(year, month)
        working = [day for day in days if not rest.covers(day)]
        if len(working) >= abs(n):
            return [working[n - 1] if n > 0 else working[n]]
        inside, outside = (days[-1], days[-1] + ONE_DAY) if n > 0 else (days[0], days[0] - ONE_DAY)
        later, earlier = (outside, inside) if n > 0 else (inside, outside)
        match roll:
            case "next":
                return [walk(later, ONE_DAY)]
            case "previous":
                return [walk(earlier, -ONE_DAY)]
            case _:
                return []

    return of_month


@dataclass(frozen=True, eq=False)
class WallRule:
    """Times of certain days. ``running``: whenever the clock shows them; otherwise once each."""

    of_month: OfMonth
    times: tuple[int, ...]
    running: bool = False
    outs: Outs | None = None
    _by_minute: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for second in self.times:
            self._by_minute.setdefault(second // 60, []).append(second % 60)

    @property
    def a_day(self) -> float:
        """Return about how many fires a firing day has."""
        return len(self.times)

    def fires(self, clock: WallClock, after: int, until: int) -> set[int]:
        """Return the fires after one instant and up to the other, in microseconds."""
        fires: set[int] = set()
        for day in _days(self, clock, after // DAY - 3, until // DAY + 3):
            fires.update(self.on(clock, day))
        return {at * MICRO for at in fires if after < at <= until}

    def count(self, clock: WallClock, after: int, until: int) -> int:
        """Count the fires. A day without a clock change has one offset, so its fires need not be listed."""
        odd = _odd_fires(self, clock)
        counted = bisect_right(odd, until) - bisect_right(odd, after)
        for day in _days(self, clock, after // DAY - 3, until // DAY + 3):
            if not clock.is_odd(day):
                midnight = day * DAY - clock.offset(day)
                counted += bisect_right(self.times, until - midnight) - bisect_right(
                    self.times, after - midnight
                )
        return counted

    def on(self, clock: WallClock, day: int) -> Iterator[int]:
        """Return the fires of one local day, in seconds."""
        return clock.whenever(day, self._by_minute) if self.running else clock.once(day, self.times)


@lru_cache(maxsize=2)
def _odd_fires(rule: WallRule, clock: WallClock) -> array[int]:
    """Return the fires of days with clock changes, in order; cached, because there may be millions."""
    odd = (day for day in _days(rule, clock, clock.first_day, clock.last_day) if clock.is_odd(day))
    return array("q", sorted({at for day in odd for at in rule.on(clock, day)}))


def _days(rule: WallRule, clock: WallClock, first: int, last: int) -> list[int]:
    every = _all_days(rule, clock.first_day, clock.last_day)
    return every[bisect_right(every, first - 1) : bisect_right(every, last)]


@lru_cache(maxsize=4096)
def _all_days(rule: WallRule, first: int, last: int) -> list[int]:
    """Return the days of a rule, in order; cached, because they are the same in all zones."""
    begin, end = date.fromordinal(719_163 + first), date.fromordinal(719_163 + last)
    days: set[int] = set()
    for total in range(begin.year * 12 + begin.month - 4, end.year * 12 + end.month + 3):
        for day in rule.of_month(total // 12, total % 12 + 1):
            there = day if rule.outs is None else rule.outs.moved(day)
            if there is not None and first <= day_number(there) <= last:
                days.add(day_number(there))
    return sorted(days)


@dataclass(frozen=True, eq=False)
class StepRule:
    """Steps of real time from a first instant on, except on excluded local days."""

    first: int
    step: int
    outs: Outs | None = None

    @property
    def a_day(self) -> float:
        return DAY * MICRO / self.step

    def fires(self, clock: WallClock, after: int, until: int) -> set[int]:
        steps = self._steps(after * MICRO + 1, until * MICRO + 1)
        if self.outs is None:
            return set(steps)
        return {at for at in steps if not self.outs.covers(clock.day_at(at // MICRO))}

    def count(self, clock: WallClock, after: int, until: int) -> int:
        if self.outs is None:
            return len(self._steps(after * MICRO + 1, until * MICRO + 1))
        counted = 0
        for day in range(after // DAY - 2, until // DAY + 3):
            if not self.outs.covers(date.fromordinal(719_163 + day)):
                counted += sum(
                    len(self._steps(max(start, after) * MICRO + (start <= after), min(end * MICRO, until * MICRO + 1)))
                    for start, end in clock.pieces(day)
                )  # fmt: skip
        return counted

    def _steps(self, start: int, end: int) -> range:
        """Return the steps from one instant to before another."""
        skipped = max(-((self.first - start) // self.step), 0)
        return range(self.first + skipped * self.step, max(end, self.first), self.step)


def cron_rule(expression: str, outs: Outs | None = None) -> WallRule:
    """Read a cron expression of five or six fields, field by field."""
    text = expression.upper()
    fields = _MACROS.get(text, text).split()
    second, minute, hour, in_month, month, in_week = fields if len(fields) == 6 else ["0", *fields]
    in_week = in_week.replace("-SUN", "-7")
    months = expand(month, 1, 12, _MONTHS)
    both = in_month.startswith("*") or in_week.startswith("*")

    def fits(day: date) -> bool:
        if day.month not in months:
            return False
        either = day_of_month_fits(in_month, day), day_of_week_fits(in_week, day)
        return all(either) if both else any(either)

    hours, minutes, seconds = expand(hour, 0, 23), expand(minute, 0, 59), expand(second, 0, 59)
    times = sorted(h * 3600 + m * 60 + s for h in hours for m in minutes for s in seconds)
    running = any(part.startswith("*") for part in (second, minute, hour))
    return WallRule(fitting(fits), tuple(times), running, outs)
