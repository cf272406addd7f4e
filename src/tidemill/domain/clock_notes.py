"""Notes on daylight-saving changes: fire times that do not exist or occur twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from tidemill.domain.calendar import BusinessCalendar, Exclude
from tidemill.domain.triggers.base import Trigger
from tidemill.domain.triggers.timeline import FixedTimes, RunningTimes
from tidemill.domain.triggers.words import clock_text, joined
from tidemill.domain.zones import DAY, EPOCH, span_at

_SECOND = timedelta(seconds=1)
_MOST_NAMED = 4
"""Number of times that a note lists individually."""


class ClockChange(NamedTuple):
    """A change of a zone's UTC offset, and its effect on a trigger."""

    at: datetime  #: the local time after the change
    before: str
    after: str
    touches: bool  #: whether one of the trigger's times does not exist or occurs twice
    words: str


class _Change(NamedTuple):
    second: int  # first second with the new offset, since 1970 UTC
    old: int
    new: int

    @property
    def walls(self) -> tuple[int, int]:
        """The half-open range of wall times that are skipped or occur twice."""
        return self.second + min(self.old, self.new), self.second + max(self.old, self.new)

    @property
    def is_ahead(self) -> bool:
        return self.new > self.old


def clock_changes(
    trigger: Trigger,
    since: datetime,
    zone: ZoneInfo,
    calendar: BusinessCalendar | None = None,
    exclude: Exclude | None = None,
    *,
    within: timedelta = timedelta(days=400),
    limit: int = 2,
) -> list[ClockChange]:
    """The next offset changes after an instant, and their effects on the trigger."""
    found: list[ClockChange] = []
    second, end = _seconds(since), _seconds(since + within)
    while len(found) < limit and (change := _next_change(zone, second, end)) is not None:
        second = change.second
        times = _touched(trigger, change, calendar, exclude)
        found.append(
            ClockChange(
                (EPOCH + second * _SECOND).astimezone(zone),
                clock_text((second + change.old) % DAY),
                clock_text((second + change.new) % DAY),
                bool(times),
                _words(trigger, change, times, zone),
            )
        )
    return found


def fire_note(
    trigger: Trigger,
    fire_at: datetime,
    zone: ZoneInfo,
    calendar: BusinessCalendar | None = None,
    exclude: Exclude | None = None,
) -> str | None:
    """The note for one fire whose wall time does not exist or occurs twice; None for any other fire.

    >>> from datetime import UTC
    >>> from tidemill.domain.triggers.daily import Daily
    >>> fire_note(Daily("02:30"), datetime(2026, 3, 29, 1, tzinfo=UTC), ZoneInfo("Europe/Berlin"))
    'for 02:30, which does not exist on this day: the clocks go from 02:00 to 03:00'
    """
    timeline = trigger.timeline(zone, calendar, exclude)
    if not isinstance(timeline, FixedTimes | RunningTimes):
        return None
    second = _seconds(fire_at)
    span = span_at(zone, second)
    before = span_at(zone, span.start - 1)
    gone = _Change(span.start, before.offset, span.offset)
    if isinstance(timeline, FixedTimes) and gone.is_ahead and second == span.start:
        times = _touched(trigger, gone, calendar, exclude)
        if times:
            jump = f"{clock_text((second + gone.old) % DAY)} to {clock_text((second + gone.new) % DAY)}"
            which = "do" if len(times) > 1 else "does"
            return f"for {_listed(times)}, which {which} not exist on this day: the clocks go from {jump}"
    wall = second + span.offset
    coming = _Change(span.end, span.offset, span_at(zone, span.end).offset)
    both = isinstance(timeline, RunningTimes)
    if not coming.is_ahead and coming.walls[0] <= wall < coming.walls[1]:
        return f"{clock_text(wall % DAY)} comes twice on this day: this is the first" + (
            ", and it fires again" if both else " and the only fire"
        )
    if both and not gone.is_ahead and gone.walls[0] <= wall < gone.walls[1]:
        return f"{clock_text(wall % DAY)} comes twice on this day: this is the second"
    return None


def _next_change(zone: ZoneInfo, second: int, end: int) -> _Change | None:
    span = span_at(zone, second)
    while span.end <= end:
        following = span_at(zone, span.end)
        if following.offset != span.offset:
            return _Change(span.end, span.offset, following.offset)
        span = following
    return None


def _touched(
    trigger: Trigger, change: _Change, calendar: BusinessCalendar | None, exclude: Exclude | None
) -> list[int]:
    """The trigger's wall times in the skipped or repeated range, computed in UTC, where each occurs once."""
    if not isinstance(trigger.timeline(ZoneInfo("UTC"), calendar, exclude), FixedTimes | RunningTimes):
        return []
    first, last = (EPOCH + wall * _SECOND - timedelta(microseconds=1) for wall in change.walls)
    found = trigger.between(first, last, "UTC", calendar, exclude, limit=_MOST_NAMED + 1)
    return [_seconds(at) for at in found]


def _words(trigger: Trigger, change: _Change, times: list[int], zone: ZoneInfo) -> str:
    timeline = trigger.timeline(zone, None, None)
    if not isinstance(timeline, FixedTimes | RunningTimes):
        return "it follows real time and is not affected"
    if not times:
        return "none of its times is touched"
    several, named = len(times) > 1, _listed(times)
    fixed = isinstance(timeline, FixedTimes)
    if change.is_ahead:
        if not fixed:
            return f"{named} {'do' if several else 'does'} not come on this day, and nothing fires"
        end = clock_text((change.second + change.new) % DAY)
        return f"{named} {'do' if several else 'does'} not exist on this day: it fires once, at {end}"
    if fixed:
        return f"{named} {'come' if several else 'comes'} twice on this day: it fires the first time only"
    return f"{named} {'come' if several else 'comes'} twice on this day, and it fires both times"


def _listed(times: list[int]) -> str:
    texts = [clock_text(time % DAY) for time in times[:_MOST_NAMED]]
    return joined([*texts, "others"]) if len(times) > _MOST_NAMED else joined(texts)


def _seconds(when: datetime) -> int:
    return (when - EPOCH) // _SECOND
