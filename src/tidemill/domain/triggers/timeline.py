"""Conversion of wall times to instants, with rules for skipped and repeated hours.

``FixedTimes`` fires each wall time once: a time inside a gap at the first instant after it, a repeated time at its first
occurrence. ``RunningTimes`` fires whenever the local clock shows one of its times: never inside a gap, twice in a repeated
hour. ``TimelineSteps`` counts real time and uses the local day only for exclusions.

All count microseconds since 1970-01-01 UTC and have the same three methods, whose cost grows with the days covered,
never with the fires.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from zoneinfo import ZoneInfo

from tidemill.domain.calendar import Exclude
from tidemill.domain.triggers.days import WallSet
from tidemill.domain.zones import DAY, EARLIEST, LATEST, date_of, frontier, reached, span_at, spans

MICRO = 1_000_000
_FURTHEST = 366 * 10 * DAY
_FIRST, _LAST = EARLIEST * MICRO, LATEST * MICRO


class Timeline(Protocol):
    """The fires of a trigger in one zone."""

    def after(self, instant: int) -> int | None:
        """The first fire after this instant."""
        ...

    def upto(self, instant: int) -> int | None:
        """The last fire at or before this instant."""
        ...

    def count(self, after: int, until: int) -> int:
        """The number of fires after the first instant, up to and including the second."""
        ...


def _held(second: int) -> int:
    """The second, clamped to the supported range; nothing fires outside it."""
    return min(max(second, EARLIEST), LATEST)


class FixedTimes:
    """Wall times that fire once each, across clock changes."""

    __slots__ = ("_walls", "_zone")

    def __init__(self, walls: WallSet, zone: ZoneInfo) -> None:
        self._walls = walls
        self._zone = zone

    def after(self, instant: int) -> int | None:
        wall = self._walls.first_from(frontier(self._zone, _held(instant // MICRO)) + 1)
        return None if wall is None else reached(self._zone, wall) * MICRO

    def upto(self, instant: int) -> int | None:
        if instant < EARLIEST * MICRO:
            return None
        wall = self._walls.last_to(frontier(self._zone, _held(instant // MICRO)))
        return None if wall is None else reached(self._zone, wall) * MICRO

    def count(self, after: int, until: int) -> int:
        start, end = _held(after // MICRO), _held(until // MICRO)
        if start >= end:
            return 0
        counted = self._walls.count(frontier(self._zone, start) + 1, frontier(self._zone, end))
        for span in spans(self._zone, start + 1, end):
            if start < span.start <= end:
                # Clocks that jump ahead pass several wall times at one instant: these are one fire.
                passed = self._walls.count(
                    frontier(self._zone, span.start - 1) + 1, frontier(self._zone, span.start)
                )
                counted -= max(passed - 1, 0)
        return counted


class RunningTimes:
    """Wall times that fire whenever the local clock shows them."""

    __slots__ = ("_walls", "_zone")

    def __init__(self, walls: WallSet, zone: ZoneInfo) -> None:
        self._walls = walls
        self._zone = zone

    def after(self, instant: int) -> int | None:
        start = _held(instant // MICRO + 1)
        span = span_at(self._zone, start)
        while True:
            wall = self._walls.first_from(start + span.offset)
            if wall is None:
                return None
            if wall - span.offset < span.end:
                return (wall - span.offset) * MICRO
            start = span.end
            span = span_at(self._zone, start)

    def upto(self, instant: int) -> int | None:
        if instant < EARLIEST * MICRO:
            return None
        last = _held(instant // MICRO)
        while True:
            span = span_at(self._zone, last)
            wall = self._walls.last_to(last + span.offset)
            if wall is None:
                return None
            if wall - span.offset >= span.start:
                return (wall - span.offset) * MICRO
            last = span.start - 1

    def count(self, after: int, until: int) -> int:
        start, end = _held(after // MICRO) + 1, _held(until // MICRO)
        return sum(
            self._walls.count(max(start, span.start) + span.offset, min(end, span.end - 1) + span.offset)
            for span in spans(self._zone, start, end)
        )


class TimelineSteps:
    """A fixed interval in microseconds from a first instant on, except on excluded local days."""

    __slots__ = ("_exclude", "_first", "_step", "_zone")

    def __init__(self, first: int, step: int, zone: ZoneInfo, exclude: Exclude | None) -> None:
        self._first = first
        self._step = step
        self._zone = zone
        self._exclude = exclude

    def after(self, instant: int) -> int | None:
        there = self._next(max(instant + 1, _FIRST))
        if self._exclude is None:
            return there if there <= _LAST else None
        end = min(there + _FURTHEST * MICRO, _LAST)
        while there <= end:
            if not self._left_out(there // MICRO):
                return there
            there = self._next(self._piece(there // MICRO)[1] * MICRO)
        return None

    def upto(self, instant: int) -> int | None:
        there = self._last(min(instant, _LAST))
        if there is None or there < _FIRST:
            return None
        if self._exclude is None:
            return there
        end = max(there - _FURTHEST * MICRO, _FIRST)
        while there is not None and there >= end:
            if not self._left_out(there // MICRO):
                return there
            there = self._last(self._piece(there // MICRO)[0] * MICRO - 1)
        return None

    def count(self, after: int, until: int) -> int:
        first, last = max(after + 1, _FIRST), min(until, _LAST)
        if self._exclude is None:
            return self._within(first, last)
        return sum(
            self._within(max(first, start * MICRO), min(last, stop * MICRO - 1))
            for start, stop in self._pieces(first // MICRO, last // MICRO)
            if not self._left_out(start)
        )

    def _next(self, instant: int) -> int:
        """The first step at or after an instant."""
        return self._first + max(-((self._first - instant) // self._step), 0) * self._step

    def _last(self, instant: int) -> int | None:
        return None if instant < self._first else instant - (instant - self._first) % self._step

    def _within(self, first: int, last: int) -> int:
        """The number of steps between two instants, both included."""
        first = max(first, self._first)
        if last < first:
            return 0
        return (last - self._first) // self._step - (first - 1 - self._first) // self._step

    def _left_out(self, second: int) -> bool:
        assert self._exclude is not None
        return self._exclude.covers(date_of((second + span_at(self._zone, second).offset) // DAY))

    def _piece(self, second: int) -> tuple[int, int]:
        """The period around a second with the same offset and the same local day."""
        span = span_at(self._zone, second)
        midnight = second - (second + span.offset) % DAY
        return max(span.start, midnight), min(span.end, midnight + DAY)

    def _pieces(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        while first <= last:
            piece = self._piece(first)
            yield piece
            first = piece[1]
