"""Output and pages of ``tidemill serve``, read-only mode, and missing packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from tests.interfaces.cli_kit import make_shop
from tests.interfaces.rest.served import PATIENCE

from tidemill.cli.serve import door, lines


def test_the_dashboard_is_printed_first_with_its_token() -> None:
    told = list(lines("http://127.0.0.1:8080", "t0ken"))
    assert told[0] == "  open    http://127.0.0.1:8080/sign-in?token=t0ken"
    assert told[-1] == "  token   t0ken"
    assert door("http://127.0.0.1:8080", None) == "http://127.0.0.1:8080/"
    assert len(list(lines("http://127.0.0.1:8080", None))) == 3


@pytest.mark.long
@pytest.mark.parametrize("missing", ["starlette", "jinja2", "itsdangerous"])
def test_a_missing_package_is_reported_with_the_install_command(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; import tidemill.dashboard"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert f"the dashboard needs {missing}: pip install 'tidemill[server]'" in done.stderr


@pytest.mark.long
def test_a_read_only_server_can_be_viewed_and_not_changed(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    command = [
        sys.executable,
        "-m",
        "tidemill",
        "serve",
        shop.where,
        "--port",
        "0",
        "--read-only",
        "--log-level",
        "error",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    ) as served:
        try:
            assert served.stdout is not None
            name, address = served.stdout.readline().split()
            assert name == "open"
            base, _, token = address.partition("/sign-in?token=")
            with httpx.Client(base_url=base, timeout=PATIENCE) as browser:
                created = browser.post(
                    "/api/jobs",
                    json={"task": "send", "args": {"to": "ada"}},
                    headers={"authorization": f"Bearer {token}"},
                )
                assert (created.status_code, created.json()["code"]) == (403, "read_only")
                inside = browser.get(address)
                assert (inside.status_code, inside.headers["location"]) == (303, "/")
                page = browser.get("/settings")
                assert page.status_code == 200
                assert "read-only" in page.text
                assert "/settings/set" not in page.text
        finally:
            served.terminate()
            served.wait(PATIENCE)
