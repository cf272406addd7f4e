"""Quiet hours: the part of a day in which notifications that are not critical wait."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from tidemill.domain.zones import zone_of
from tidemill.errors import BadSettings

_FORM = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})(?:\s+(\S+))?")


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A daily period in a time zone, which may pass midnight."""

    start: time
    end: time
    zone: ZoneInfo

    def ends_at(self, now: datetime) -> datetime | None:
        """When the quiet hours end that contain this instant; None outside of them.

        >>> from datetime import UTC
        >>> quiet = read_quiet_hours("22:00-07:00 Europe/Berlin")
        >>> quiet.ends_at(datetime(2026, 1, 1, 23, 30, tzinfo=UTC))
        datetime.datetime(2026, 1, 2, 6, 0, tzinfo=datetime.timezone.utc)
        >>> quiet.ends_at(datetime(2026, 1, 1, 12, tzinfo=UTC)) is None
        True
        """
        local = now.astimezone(self.zone)
        # The period that began yesterday may still last.
        for days in (1, 0):
            day = (local - timedelta(days=days)).date()
            begins = datetime.combine(day, self.start, self.zone)
            last = day if self.end > self.start else day + timedelta(days=1)
            ends = datetime.combine(last, self.end, self.zone)
            # Compare instants: times of one zone compare by the clock on the wall, which may go back.
            if begins.timestamp() <= now.timestamp() < ends.timestamp():
                return ends.astimezone(now.tzinfo)
        return None


def read_quiet_hours(given: str) -> QuietHours:
    """Read ``"22:00-07:00 Europe/Berlin"``; without a zone, the times are UTC."""
    match = _FORM.fullmatch(given.strip())
    if match is None:
        raise BadSettings(f"quiet is {given!r}; give hours and a zone such as '22:00-07:00 Europe/Berlin'")
    try:
        start, end = time(int(match[1]), int(match[2])), time(int(match[3]), int(match[4]))
    except ValueError:
        raise BadSettings(f"quiet is {given!r}; an hour is 0 to 23 and a minute 0 to 59") from None
    if start == end:
        raise BadSettings(f"quiet is {given!r}; it must begin and end at different times")
    return QuietHours(start, end, zone_of(match[5] or "UTC"))
