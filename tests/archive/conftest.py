"""Fixtures of archive tests: stores of each kind, and a bucket of a real S3-compatible server."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from tests.grounds import url_of

from tidemill import App
from tidemill.ids import new_id


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
    """The URL of a new bucket on a local S3 server, with credentials in the environment."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        name = f"archive-{new_id().hex[-12:]}"
        address = f"http://{host}:{port}"
        with urllib.request.urlopen(urllib.request.Request(f"{address}/{name}", method="PUT")):
            pass
        for key, value in (
            ("ACCESS_KEY_ID", "key"),
            ("SECRET_ACCESS_KEY", "secret"),
            ("REGION", "us-east-1"),
        ):
            monkeypatch.setenv(f"AWS_{key}", value)
        yield f"s3://{name}/tidemill?endpoint={address}"
    finally:
        server.stop()
