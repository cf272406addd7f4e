"""A bucket of a real S3-compatible server, in a thread of the test process."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from moto.server import ThreadedMotoServer

from tidemill.ids import new_id


@contextmanager
def running_bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a local S3 server and yield the URL of a new bucket, with credentials in the environment."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        name = f"bucket-{new_id().hex[-12:]}"
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
