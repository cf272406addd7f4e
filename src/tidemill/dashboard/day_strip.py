"""The fires of all schedules in the next 24 hours, as bars of a quarter of an hour and as a list."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.schedules import ScheduleRow
from tidemill.domain.triggers.base import trigger_from_data
from tidemill.domain.zones import zone_of
from tidemill.errors import TidemillError

DAY = timedelta(hours=24)
STEP = timedelta(minutes=15)
CELLS = DAY // STEP
TICKS = 8

MOST_SCHEDULES = 100
"""Maximum number of schedules that are drawn, those that fire next."""

MOST_FIRES = DAY // timedelta(minutes=1)
"""Maximum number of fires of one schedule that are computed. If there are more, they are drawn evenly spaced."""

OFTEN = 24
"""A schedule with more fires than this is listed with its next fire alone."""

BASE = 0.35
"""Share of the height for schedules that fire often, so that the others stand out."""

MOST_LISTED = 12
_NAMED = 4

_ODD = (TidemillError, TypeError, ValueError, LookupError, AttributeError, OverflowError)
"""Errors of a schedule that this process cannot read."""


class Cell(NamedTuple):
    """A quarter of an hour: the number of fires, and the schedules with the most."""

    since: datetime
    until: datetime
    fires: int
    words: str
    x: float
    width: float
    base: float  #: height of the bar of schedules that fire often
    height: float  #: height of the bar of the other schedules, on top of it


class ListedFire(NamedTuple):
    """One fire in the list, or the first of a schedule that fires often."""

    at: datetime
    id: UUID
    key: str
    often: bool


class DayStrip(NamedTuple):
    """The next 24 hours of all schedules."""

    cells: list[Cell]
    ticks: list[datetime]
    listed: list[ListedFire]
    total: int
    more: int  #: schedules that are not drawn
    width: float
    height: float


def day_strip(
    rows: Iterable[ScheduleRow], now: datetime, *, width: float = 960, height: float = 56
) -> DayStrip:
    """Return the fires of the 24 hours that begin with the current quarter of an hour."""
    start = now.astimezone(UTC)
    start -= timedelta(minutes=start.minute % 15, seconds=start.second, microseconds=start.microsecond)
    due = sorted(
        (
            row
            for row in rows
            if row.enabled and row.next_fire_at is not None and row.next_fire_at < start + DAY
        ),
        key=lambda row: (row.next_fire_at, row.key),
    )
    counts: list[Counter[str]] = [Counter() for _ in range(CELLS)]
    often: Counter[int] = Counter()
    listed: list[ListedFire] = []
    for row in due[:MOST_SCHEDULES]:
        fires = _fires_of(row, start)
        for at, number in fires.per_cell.items():
            counts[at][row.key] += number
            if fires.often:
                often[at] += number
        coming = [at for at in fires.first if at > now]
        shown = coming[: 1 if fires.often else MOST_LISTED]
        listed += [ListedFire(at, row.id, row.key, fires.often) for at in shown]
    listed.sort(key=lambda fire: (fire.at, fire.key))
    totals = [sum(cell.values()) for cell in counts]
    base = _heights([often[at] for at in range(CELLS)], height * BASE)
    top = _heights([total - often[at] for at, total in enumerate(totals)], height * (1 - BASE))
    return DayStrip(
        [
            Cell(
                start + at * STEP,
                start + (at + 1) * STEP,
                totals[at],
                _words(cell),
                *_place(at, width),
                base[at],
                top[at],
            )
            for at, cell in enumerate(counts)
        ],
        [start + number * DAY / TICKS for number in range(TICKS + 1)],
        listed[:MOST_LISTED],
        sum(totals),
        max(0, len(due) - MOST_SCHEDULES),
        width,
        height,
    )


def _heights(numbers: Sequence[int], tallest: float) -> list[float]:
    """Scale numbers to heights. A single fire remains visible next to a quarter of an hour with many."""
    most = max(numbers, default=0) or 1
    return [round(max(4.0, tallest * number / most), 2) if number else 0.0 for number in numbers]


def _place(at: int, width: float) -> tuple[float, float]:
    step = width / CELLS
    return round(at * step, 2), round(step - 1, 2)


def _words(counts: Counter[str]) -> str:
    named = [key if fires == 1 else f"{key} ×{fires}" for key, fires in counts.most_common()]
    # Schedules that fire seldom come first: they are what a reader looks for.
    named.reverse()
    return ", ".join([*named[:_NAMED], *([f"{len(named) - _NAMED} more"] if len(named) > _NAMED else [])])


class _Fires(NamedTuple):
    per_cell: Mapping[int, int]
    first: tuple[datetime, ...]
    often: bool


def _fires_of(row: ScheduleRow, start: datetime) -> _Fires:
    days = (json.dumps(data, sort_keys=True) if data else "" for data in (row.calendar, row.exclude))
    try:
        return _computed(json.dumps(row.trigger, sort_keys=True), row.timezone, *days, start)
    except _ODD:
        return _Fires({}, (), often=False)


@lru_cache(maxsize=2 * MOST_SCHEDULES)
def _computed(trigger: str, timezone: str, calendar: str, exclude: str, start: datetime) -> _Fires:
    """Compute the fires of one rule; the result holds for a quarter of an hour."""
    fires = trigger_from_data(json.loads(trigger)).between(
        start - timedelta(microseconds=1),
        start + DAY - timedelta(microseconds=1),
        zone_of(timezone),
        BusinessCalendar.from_data(json.loads(calendar)) if calendar else None,
        Exclude.from_data(json.loads(exclude)) if exclude else None,
        limit=MOST_FIRES + 1,
    )
    instants = tuple(at.astimezone(UTC) for at in fires)
    if len(instants) <= MOST_FIRES:
        return _Fires(Counter((at - start) // STEP for at in instants), instants, often=len(instants) > OFTEN)
    gap = (instants[-1] - instants[0]) / MOST_FIRES
    spread = {number: max(1, round(STEP / gap)) for number in range((instants[0] - start) // STEP, CELLS)}
    return _Fires(spread, instants, often=True)
