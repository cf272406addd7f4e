"""Fixture: an app on each store in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.grounds import url_of

from tidemill.app import App


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """The same app on each kind of store."""
    url = url_of(request.param, tmp_path, request)
    with App(url, migrate=True) as app:
        yield app
