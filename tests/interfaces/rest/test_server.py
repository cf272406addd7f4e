"""``tidemill serve`` and its server: keys, tokens and shutdown."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from tests.interfaces.cli_kit import make_shop
from tests.interfaces.rest.served import PATIENCE, make_api, place

from tidemill import App
from tidemill.cli import commands
from tidemill.errors import BadSettings
from tidemill.sockets import is_loopback, listening
from tidemill.web.server import serve


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_without_a_key_the_server_listens_only_on_loopback(host: str) -> None:
    assert not is_loopback(host)
    with App("memory://") as app, pytest.raises(BadSettings, match=r"no active API key.*keys create"):
        serve(app, make=make_api, host=host, port=0)


def test_a_revoked_key_does_not_count_as_a_key() -> None:
    with App("memory://") as app:
        app.keys.revoke(app.keys.create("old", role="super_admin").key.id)
        with pytest.raises(BadSettings, match="no active API key"):
            serve(app, make=make_api, host="0.0.0.0", port=0)


def test_an_address_that_is_in_use_is_reported() -> None:
    with (
        listening("127.0.0.1", 0) as taken,
        App("memory://") as app,
        pytest.raises(BadSettings, match="cannot listen"),
    ):
        serve(app, make=make_api, port=taken.getsockname()[1])


def test_two_servers_never_share_a_token() -> None:
    with place() as one, place() as two:
        assert one.serving.token
        assert one.serving.token != two.serving.token
        assert one.request("GET", "/api/keys")[0] == 200
        assert one.request("GET", "/api/keys", authorization=f"Bearer {two.serving.token}")[0] == 401


def test_a_request_with_a_foreign_host_name_is_rejected() -> None:
    with place() as where:
        assert where.request("GET", "/livez", host="localhost")[0] == 200
        status, document = where.request("GET", "/api/jobs", host="rebound.example")
        assert (status, document["code"]) == (421, "unknown_host")


def test_with_a_key_there_is_no_token(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with App(url) as app:
        secret = app.keys.create("own", role="viewer").secret
    with place(url) as where:
        assert where.serving.token is None
        assert where.request("GET", "/api/jobs", authorization=f"Bearer {secret}")[0] == 200
        assert where.request("GET", "/api/jobs")[0] == 401


def test_the_command_refuses_a_public_address_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    shop = make_shop(tmp_path)
    done = CliRunner().invoke(commands, ["serve", shop.where, "--host", "0.0.0.0", "--port", "0"])
    assert done.exit_code == 2
    assert "no active API key" in done.output


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_it_gets_a_signal(tmp_path: Path, how: signal.Signals) -> None:
    shop = make_shop(tmp_path)
    command = [
        sys.executable,
        "-m",
        "tidemill",
        "serve",
        shop.where,
        "--port",
        "0",
        "--json",
        "--log-level",
        "warning",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    ) as served:
        try:
            assert served.stdout is not None
            facts = json.loads(served.stdout.readline())["started"]
            where = urlsplit(facts["url"])
            connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE)
            headers = {"authorization": f"Bearer {facts['token']}"}
            connection.request("GET", "/api/tasks", headers=headers)
            found = json.loads(connection.getresponse().read())
            assert [task["name"] for task in found["items"]] == ["fail", "look", "send"]
            connection.request("GET", "/api/events", headers=headers)
            stream = connection.getresponse()
            assert stream.status == 200
            served.send_signal(how)
            stream.read()  # reads to the end
            connection.close()
            assert served.wait(PATIENCE) == 0
        finally:
            served.kill()
