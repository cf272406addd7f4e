"""Fixtures of archive tests: stores of each kind, and a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.grounds import url_of
from tests.servers.buckets import running_bucket

from tidemill import App


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def jobs_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a new store of each kind."""
    return url_of(request.param, tmp_path, request)


@pytest.fixture
def app(jobs_url: str, tmp_path: Path) -> Iterator[App]:
    """An app that archives into files of a directory."""
    with App(stores={"default": jobs_url, "archive": f"file://{tmp_path}/archive"}, migrate=True) as app:
        yield app


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a new bucket on a local S3 server."""
    with running_bucket(monkeypatch) as url:
        yield url
