"""Conversion between local wall time and instants.

This module counts whole seconds. An *instant* is seconds since 1970-01-01 UTC. A *wall* is the local clock's time, counted
the same way as if there were no offset, so that ``wall // 86400`` is the local day and ``wall % 86400`` its time.

Two functions decide every daylight-saving rule. ``reached(zone, wall)`` is the first instant at which the local clock shows
that wall time or a later one: for a time inside a gap the instant right after the gap, for a repeated time its first
occurrence. ``frontier(zone, instant)`` is the latest wall time shown so far, which does not change while an hour repeats.

Only ``zone_of`` creates zones, because that may read the zone's file; everything else depends only on its arguments. The
spans of a zone's year are cached per zone object.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from tidemill.errors import BadSchedule

DAY = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_ORDINAL = EPOCH.toordinal()
_SECOND = timedelta(seconds=1)

EARLIEST = (date(1800, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY
LATEST = (date(9900, 1, 1).toordinal() - EPOCH_ORDINAL) * DAY
"""Bounds of supported instants: zones have no rules beyond them, and arithmetic would overflow."""


class ZoneSpan(NamedTuple):
    """From ``start`` until before ``end`` the zone's clocks differ from UTC by ``offset`` seconds."""

    start: int
    end: int
    offset: int


def zone_of(zone: str | ZoneInfo) -> ZoneInfo:
    """The zone with this IANA name, such as ``Europe/Berlin``; the only function that creates zones."""
    if isinstance(zone, ZoneInfo):
        return zone
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError, AttributeError):
        raise BadSchedule(
            f"timezone: unknown time zone {zone!r}; give an IANA name such as 'Europe/Berlin' or 'UTC'",
            field="timezone",
            value=zone,
        ) from None


def day_of(when: date) -> int:
    """A date as days since 1970-01-01."""
    return when.toordinal() - EPOCH_ORDINAL


def date_of(day: int) -> date:
    """The date of a number of days since 1970-01-01."""
    return date.fromordinal(day + EPOCH_ORDINAL)


def span_at(zone: ZoneInfo, instant: int) -> ZoneSpan:
    """The span of unchanged offset around an instant. Spans are cut at the start of each UTC year."""
    for span in _spans_of_year(zone, date_of(instant // DAY).year):
        if instant < span.end:
            return span
    raise AssertionError("a year's spans cover the year")


def spans(zone: ZoneInfo, start: int, end: int) -> Iterator[ZoneSpan]:
    """The spans that touch ``start`` to ``end`` (both included), in order, not cut at these two."""
    while start <= end:
        span = span_at(zone, start)
        yield span
        start = span.end


def wall_at(zone: ZoneInfo, instant: int) -> int:
    """The local wall time."""
    return instant + span_at(zone, instant).offset


def frontier(zone: ZoneInfo, instant: int) -> int:
    """The latest wall time that the local clock has shown up to and including an instant."""
    span = span_at(zone, instant)
    latest = instant + span.offset
    # An offset is less than a day, so any time shown more than two days ago has been passed by now.
    while span.start > instant - 2 * DAY:
        span = span_at(zone, span.start - 1)
        latest = max(latest, span.end - 1 + span.offset)
    return latest


def reached(zone: ZoneInfo, wall: int) -> int:
    """The first instant at which the local clock shows ``wall`` or later."""
    span = span_at(zone, wall - DAY)
    while True:
        instant = max(span.start, wall - span.offset)
        if instant < span.end:
            return instant
        span = span_at(zone, span.end)


@lru_cache(maxsize=4096)
def _spans_of_year(zone: ZoneInfo, year: int) -> tuple[ZoneSpan, ...]:
    """The spans of one UTC year, found by sampling the zone daily and searching where the offset changed.

    Two changes within one day could be missed; the zone database has none within two days.
    """
    first = day_of(date(year, 1, 1)) * DAY
    last = day_of(date(year + 1, 1, 1)) * DAY
    found: list[ZoneSpan] = []
    start, offset, known = first, _offset(zone, first), first
    for probe in range(first + DAY, last + 1, DAY):
        there = _offset(zone, min(probe, last - 1))
        if there != offset:
            low, high = known, min(probe, last - 1)
            while high - low > 1:
                middle = (low + high) // 2
                if _offset(zone, middle) == offset:
                    low = middle
                else:
                    high = middle
            found.append(ZoneSpan(start, high, offset))
            start, offset = high, there
        known = probe
    found.append(ZoneSpan(start, last, offset))
    return tuple(found)


def _offset(zone: ZoneInfo, instant: int) -> int:
    shift = (EPOCH + timedelta(seconds=instant)).astimezone(zone).utcoffset()
    return shift // _SECOND if shift is not None else 0
