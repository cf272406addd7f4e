"""Helpers for the schedule tests: an app with one task and a manual clock."""

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
def app_on(url: str = "memory://") -> Iterator[App]:
    with App(url, migrate=True, clock=ManualClock(MIDNIGHT), name="mill") as app:
        app.task(name="send")(send)
        yield app


@contextmanager
def on_each_store(request: pytest.FixtureRequest, folder: Path) -> Iterator[App]:
    """An app on the store that the fixture's parameter names."""
    url = url_of(request.param, folder, request)
    with app_on(url) as app:
        yield app
