"""The only file that reads the time. Everything else is handed an instant or a ``Clock``."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Tells aware UTC instants, and seconds that never jump."""

    def now(self) -> datetime: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's own clock. It is read several times for every job, so its readings are not wrapped once more."""

    now = staticmethod(partial(datetime.now, UTC))
    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock that stands still until it is moved; for tests.

    >>> clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    >>> clock.advance(timedelta(minutes=5)).isoformat()
    '2026-01-01T00:05:00+00:00'
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start if start is not None else datetime(2026, 1, 1, tzinfo=UTC)
        self._seconds = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, by: timedelta) -> datetime:
        """Move on; time does not run backwards here."""
        if by < timedelta(0):
            raise ValueError("a clock is advanced, never turned back")
        self._now += by
        self._seconds += by.total_seconds()
        return self._now
