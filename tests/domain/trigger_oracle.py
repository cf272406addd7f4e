"""An independent, slow reading of cron schedules, minute by minute.

It shares no code with the code under test, nor with cronsim: fields are expanded here, days are walked one by one, and zoneinfo
decides whether a wall time exists.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

Moved = Callable[[date], date | None]


def expand(field: str, least: int, most: int, names: list[str] | None = None) -> set[int]:
    """Return the numbers of a field without special characters."""
    numbers: set[int] = set()
    for term in field.split(","):
        body, slash, step = term.partition("/")
        low, dash, high = body.partition("-")
        if body == "*":
            first, last = least, most
        else:
            first = names.index(low) + least if names and low in names else int(low)
            last = first
            if dash:
                last = names.index(high) + least if names and high in names else int(high)
            elif slash:
                last = most
        numbers |= set(range(first, last + 1, int(step) if slash else 1))
    return numbers


def length(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def day_of_month_fits(field: str, day: date) -> bool:
    for term in field.split(","):
        if term == "L":
            meant = length(day)
        elif term == "LW":
            meant = max(d for d in range(1, length(day) + 1) if day.replace(day=d).weekday() < 5)
        elif term.endswith("W"):
            target = int(term[:-1])
            if target > length(day):
                continue
            working = [d for d in range(1, length(day) + 1) if day.replace(day=d).weekday() < 5]
            # Distances of 2 occur only at the edges of a month; a tie is impossible.
            meant = min(working, key=lambda d: abs(d - target))
        elif day.day in expand(term, 1, 31):
            return True
        else:
            continue
        if day.day == meant:
            return True
    return False


def day_of_week_fits(field: str, day: date) -> bool:
    mine = (day.weekday() + 1) % 7
    for term in field.split(","):
        name, mark, which = term.partition("#")
        if mark:
            wanted = WEEKDAYS.index(name) if name in WEEKDAYS else int(name) % 7
            if mine == wanted and (day.day - 1) // 7 + 1 == int(which):
                return True
        elif term.endswith("L"):
            wanted = WEEKDAYS.index(term[:-1]) if term[:-1] in WEEKDAYS else int(term[:-1]) % 7
            if mine == wanted and day.day + 7 > length(day):
                return True
        elif mine in {number % 7 for number in expand(term, 0, 7, WEEKDAYS)}:
            return True
    return False


class CronOracle:
    """A five-field expression, matched field by field."""

    def __init__(self, expression: str) -> None:
        minute, hour, self.day, month, self.weekday = expression.upper().split()
        self.minutes, self.hours = expand(minute, 0, 59), expand(hour, 0, 23)
        self.months = expand(month, 1, 12, MONTHS)
        self.running = minute.startswith("*") or hour.startswith("*")

    def fits_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        either = day_of_month_fits(self.day, day), day_of_week_fits(self.weekday, day)
        both = self.day.startswith("*") or self.weekday.startswith("*")
        return all(either) if both else any(either)

    def fires(
        self, zone: ZoneInfo, after: datetime, until: datetime, moved: Moved = lambda day: day
    ) -> list[datetime]:
        times = {(hour, minute) for hour in self.hours for minute in self.minutes}
        return brute(self.fits_day, times, zone, after, until, moved, running=self.running)


def brute(
    fits_day: Callable[[date], bool],
    times: set[tuple[int, int]],
    zone: ZoneInfo,
    after: datetime,
    until: datetime,
    moved: Moved = lambda day: day,
    *,
    running: bool = False,
) -> list[datetime]:
    """Return the fires after one instant and up to the other, day by day and minute by minute."""
    fires: set[datetime] = set()
    day, last = after.astimezone(zone).date() - 40 * DAY, until.astimezone(zone).date() + 40 * DAY
    days: set[date] = set()
    while day <= last:
        if fits_day(day) and (there := moved(day)) is not None:
            days.add(there)
        day += DAY
    for day in days:
        if not after.astimezone(zone).date() - 2 * DAY <= day <= until.astimezone(zone).date() + 2 * DAY:
            continue
        for minute in range(24 * 60):
            if divmod(minute, 60) in times:
                wall = datetime(day.year, day.month, day.day, *divmod(minute, 60))  # noqa: DTZ001
                fires.update(instants(wall, zone) if running else [first_valid(wall, zone)])
    return sorted(at for at in fires if after < at <= until)


def instants(wall: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """Yield the instants at which the clock shows a wall time: none, one or two."""
    for fold in (0, 1):
        at = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
        if at.astimezone(zone).replace(tzinfo=None, fold=0) == wall:
            yield at


def first_valid(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return the first instant at which the clock shows a wall time, or the next time that it does show."""
    while True:
        shown = list(instants(wall, zone))
        if shown:
            return min(shown)
        wall += MINUTE
