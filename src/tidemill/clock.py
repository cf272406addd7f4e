"""Clocks: the only module that reads the time.

All other modules receive an instant or a ``Clock``.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from tidemill.domain.durations import Duration, read_duration


class Clock(Protocol):
    """A source of aware UTC instants and monotonic seconds."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The system clock. It is read several times per job, so its methods are the built-in functions without a wrapper."""

    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock for tests that changes only when it is advanced.

    >>> clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    >>> clock.advance("5m").isoformat()
    '2026-01-01T00:05:00+00:00'
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start if start is not None else datetime(2026, 1, 1, tzinfo=UTC)
        self._seconds = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, by: Duration) -> datetime:
        """Advance both clocks; a negative duration raises ``ValueError``."""
        span = read_duration("by", by)
        if span < timedelta(0):
            raise ValueError("a manual clock cannot be turned back; use leap() to step the wall clock")
        self._now += span
        self._seconds += span.total_seconds()
        return self._now

    def leap(self, by: Duration) -> datetime:
        """Step only the wall clock, forward or back, as NTP or a failover may do."""
        self._now += read_duration("by", by)
        return self._now
