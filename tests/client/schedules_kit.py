"""What the tests of schedules share: an app with one task, on each store, on a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.grounds import url_of

from tidemill import App, ManualClock

HOUR = timedelta(hours=1)
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
TO = {"to": "ann"}


def send(to: str, size: int = 1) -> str:
    return to * size


@contextmanager
def a_mill(url: str = "memory://") -> Iterator[App]:
    with App(url, migrate=True, clock=ManualClock(MIDNIGHT), name="mill") as app:
        app.task(name="send")(send)
        yield app


@contextmanager
def on_each_store(request: pytest.FixtureRequest, folder: Path) -> Iterator[App]:
    """For a fixture with the kinds of stores as its parameters."""
    url = url_of(request.param, folder, request)
    with a_mill(url) as app:
        yield app
