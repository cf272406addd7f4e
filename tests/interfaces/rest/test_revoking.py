"""Revocation of a key on one server is effective on another within five seconds.

The servers are real processes, each with its own cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.interfaces.cli_kit import Shop, make_shop

from tidemill import App
from tidemill.client.access import FRESH
from tidemill.clock import SystemClock

PATIENCE = 60.0


@contextlib.contextmanager
def served(shop: Shop, folder: Path) -> Iterator[str]:
    """The URL of a server in its own process."""
    words = [sys.executable, "-m", "tidemill", "serve", shop.where, "--port", "0", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with subprocess.Popen(
        [*words, "--log-level", "error"], stdout=subprocess.PIPE, text=True, cwd=folder, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["started"]["url"]
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


def asked(url: str, path: str, key: str, method: str = "GET") -> int:
    request: Any = Request(url + path, headers={"authorization": f"Bearer {key}"}, method=method)
    try:
        with urlopen(request, timeout=PATIENCE) as answer:
            status: int = answer.status
            return status
    except HTTPError as error:
        with error:
            return error.code


@pytest.mark.long
def test_a_key_revoked_on_one_server_is_rejected_by_another_within_five_seconds(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    with App(shop.url, migrate=True) as app:
        boss = app.keys.create("boss", role="super_admin").secret
        guest = app.keys.create("guest", role="viewer")
    clock = SystemClock()
    with served(shop, tmp_path) as here, served(shop, tmp_path) as there:
        for url in (here, there):
            assert asked(url, "/api/jobs", guest.secret) == 200
        assert asked(here, f"/api/keys/{guest.key.id}", boss, "DELETE") == 204
        revoked_at = clock.monotonic()
        assert asked(here, "/api/jobs", guest.secret) == 401  # at once on the server that revoked it
        while True:
            began = clock.monotonic()
            status = asked(there, "/api/jobs", guest.secret)
            if status == 401:
                break
            assert status == 200
            assert began - revoked_at < FRESH, "a request that began more than five seconds later was let in"
        assert asked(there, "/api/jobs", boss) == 200
