"""Helpers for the firing tests: an app with a manual clock, on each store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.grounds import url_of

from tidemill import App, ManualClock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.domain.schedules import Fired
from tidemill.stores.base import Store

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


class Tower:
    """A clock, an app and a record of its runs."""

    def __init__(self, store: str | Store, start: datetime = MIDNIGHT) -> None:
        self.clock = ManualClock(start)
        self.app = App(store, migrate=True, clock=self.clock, name="tower")
        self.ran: list[Any] = []

        @self.app.task
        def note(word: str = "tick") -> None:
            self.ran.append(word)

        self.note = note
        self.testing = self.app.testing()

    @property
    def store(self) -> Store:
        return self.app.store

    def after(self, by: timedelta) -> list[Any]:
        """Advance the clock, run due jobs, and return the record of the runs."""
        self.ran.clear()
        self.testing.advance(by)
        self.testing.drain()
        return list(self.ran)

    def fires(self, key: str, **where: Any) -> list[Fired]:
        """The fires of a schedule, oldest first."""
        return list(reversed(self.app.schedules.fires(key, limit=10_000, **where)))

    def said(self, key: str, **where: Any) -> list[tuple[str, str | None]]:
        """Time of day and reason of each fire."""
        return [(f"{fire.fire_at:%H:%M}", fire.reason) for fire in self.fires(key, **where)]

    def jobs(self, **where: Any) -> list[JobRow]:
        found = [each.row for each in self.app.jobs.stream(tenant=ALL_TENANTS, **where)]
        return sorted(found, key=lambda job: (job.details.fire_at or job.created_at, job.id))


@contextmanager
def a_tower(store: str | Store = "memory://", start: datetime = MIDNIGHT) -> Iterator[Tower]:
    tower = Tower(store, start)
    try:
        yield tower
    finally:
        tower.testing.close()
        tower.app.close()


@contextmanager
def on_each_store(request: pytest.FixtureRequest, folder: Path) -> Iterator[Tower]:
    """A tower on the store that the fixture's parameter names."""
    url = url_of(request.param, folder, request)
    with a_tower(url) as tower:
        yield tower
