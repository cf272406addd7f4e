"""Tests of the FastAPI example on a real server."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
import uvicorn
from tests.engine.worker_kit import until
from tests.interfaces.cli_kit import call

from tidemill.sockets import listening

FILE = Path(__file__).parents[2] / "examples" / "fastapi_app" / "shop.py"
PATIENCE = 60.0


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("example_shop", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # SQLAlchemy resolves annotations through this entry
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(params=["sqlite", "postgres"])
def shop(
    example: ModuleType, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[httpx.Client, Any]]:
    where = f"sqlite:///{tmp_path}/shop.db"
    url = where if request.param == "sqlite" else request.getfixturevalue("fresh_postgres_url")
    site = example.create(url)
    server = uvicorn.Server(uvicorn.Config(site, log_config=None, lifespan="on"))
    with listening("127.0.0.1", 0) as sock:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        until(lambda: server.started or not thread.is_alive(), "it serves", PATIENCE)
        base = f"http://127.0.0.1:{sock.getsockname()[1]}"
        try:
            with httpx.Client(base_url=base, timeout=PATIENCE) as client:
                yield client, site.state.shop
        finally:
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive()


def test_an_order_is_accepted_tracked_and_completed(shop: tuple[httpx.Client, Any]) -> None:
    client, inside = shop
    answer = client.post("/orders", json={"book": "Tides", "copies": 3})
    assert answer.status_code == 202
    accepted = answer.json()
    assert accepted["status"] == "processing"
    where = answer.headers["location"]
    assert where.endswith(f"/status/{accepted['job']}")
    until(lambda: client.get(where).json()["status"] == "completed", "it is printed", PATIENCE)
    assert client.get(where).json() | {"eta": None} == {
        "status": "completed",
        "progress": 1.0,
        "message": "printing Tides",
        "eta": None,
        "attempt": 1,
    }
    (attempt,) = client.get(f"/history/{accepted['job']}").json()
    assert attempt["state"] == "succeeded"
    assert client.get(f"/status/{accepted['job'][:-4]}0000").status_code == 404

    refused = client.post("/orders", json={"book": "forbidden"})
    assert refused.status_code == 409
    assert [order["book"] for order in client.get("/orders").json()] == ["Tides"]
    assert inside.jobs.jobs.count() == 1  # neither the order nor its job was stored

    assert client.get("/background/api/jobs").status_code == 401
    key = inside.jobs.keys.create("boss", role="viewer").secret
    found = client.get("/background/api/jobs", headers={"authorization": f"Bearer {key}"})
    assert [job["reference"] for job in found.json()["items"]] == [["order", str(accepted["order"])]]

    assert client.get("/background/").headers["location"] == "/background/sign-in"
    signed = client.post("/background/sign-in", data={"key": key, "next": "/workers"})
    assert (signed.status_code, signed.headers["location"]) == (303, "/background/workers")
    page = client.get("/background/workers")
    assert page.status_code == 200
    assert "1 worker, " in page.text


@pytest.fixture
def in_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Run the command line in the folder of the example."""
    monkeypatch.chdir(FILE.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("SHOP", f"sqlite:///{tmp_path}/shop.db")
    yield
    sys.modules.pop("shop", None)


def test_the_command_line_works_with_the_factory(in_the_folder: None) -> None:
    made = call("keys", "create", "ann", "--role", "super_admin", "--app", "shop:create")
    assert made.exit_code == 0, made.output
    made = call("jobs", "enqueue", "print_order", "order=1", "--app", "shop:create", "--json")
    assert made.exit_code == 0, made.output
    listed = call("jobs", "list", "--app", "shop:create", "--json")
    assert [job["task"] for job in json.loads(listed.stdout)["items"]] == ["print_order"]


@pytest.mark.long
@pytest.mark.parametrize("command", ["worker", "up"])
def test_a_worker_runs_the_jobs_of_the_factory(in_the_folder: None, command: str) -> None:
    job = json.loads(
        call("jobs", "enqueue", "print_order", "order=1", "--app", "shop:create", "--json").stdout
    )
    words = [sys.executable, "-m", "tidemill", command, "shop:create", "--processes", "2", "--json"]
    words += ["--port", "0"] if command == "up" else []
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            started = json.loads(running.stdout.readline())["started"]
            assert started["tasks"] == ["print_order"]
            # There is no order 1, so the task fails, which shows that the worker has run it.
            until(lambda: status_of(job["id"])["attempt"] >= 1, "the job was tried", PATIENCE)
        finally:
            running.terminate()
            running.communicate(timeout=PATIENCE)


def status_of(id: str) -> Any:
    return json.loads(call("jobs", "show", id, "--app", "shop:create", "--json").stdout)
