"""Shutdown of real servers with open event streams and embedded workers."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.engine.worker_kit import until
from tests.interfaces.cli_kit import make_shop

from tidemill import App
from tidemill.sockets import listening

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0
LIMIT = 2.0
"""Seconds from the signal to the end of the process, on a machine with a free processor."""

SLOWER = {"gunicorn, its own ASGI worker": 4.0}
"""That worker checks once per second whether it must stop."""

SITE = """
import os
import time
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from tidemill import App, Identity, Role
from tidemill.contrib.fastapi import lifespan, mount

app = App(os.environ["JOBS"], migrate=True)


@app.task
def print_book() -> None:
    Path("begun").touch()
    time.sleep(0.5)


async def staff(request):
    return Identity("staff", Role.OPERATOR, "*")


@asynccontextmanager
async def own(_):
    yield
    Path(f"drained-{os.getpid()}").touch()


site = FastAPI(lifespan=lifespan(app, worker={"concurrency": 1, "threads": 1, "grace": 5}, then=own))
mount(site, app, "/ops", auth=staff)
"""

IN_LITESTAR = """
from litestar import Litestar, asgi
from litestar.types import Receive, Scope, Send
from site_with_jobs import app, staff
from tidemill.dashboard import create_site

inside = create_site(app, auth=staff)


@asgi("/ops", is_mount=True, copy_scope=True)
async def ops(scope: Scope, receive: Receive, send: Send) -> None:
    await inside(scope, receive, send)


site = Litestar([ops])
"""

PROGRAMS = {
    "uvicorn": ["uvicorn", "--fd", "{fd}", "site_with_jobs:site"],
    "uvicorn on asyncio": ["uvicorn", "--fd", "{fd}", "--loop", "asyncio", "--http", "h11", "site_with_jobs:site"],
    "uvicorn --workers 2": ["uvicorn", "--fd", "{fd}", "--workers", "2", "site_with_jobs:site"],
    "gunicorn, uvicorn worker": ["gunicorn", "--bind", "fd://{fd}", "--workers", "2", "--worker-class",
                                 "uvicorn_worker.UvicornWorker", "site_with_jobs:site"],
    "gunicorn, its own ASGI worker": ["gunicorn", "--bind", "fd://{fd}", "--worker-class", "asgi", "site_with_jobs:site"],
    "hypercorn": ["hypercorn", "--bind", "fd://{fd}", "site_with_jobs:site"],
    "hypercorn on uvloop": ["hypercorn", "--bind", "fd://{fd}", "--worker-class", "uvloop", "site_with_jobs:site"],
    "granian": ["granian", "--interface", "asgi", "--port", "{port}", "site_with_jobs:site"],
    "granian on asyncio": ["granian", "--interface", "asgi", "--port", "{port}", "--loop", "asyncio", "site_with_jobs:site"],
}  # fmt: skip


class Process:
    """A server program that listens on a local port."""

    def __init__(self, popen: subprocess.Popen[bytes], port: int, folder: Path) -> None:
        self.popen, self.port, self._folder = popen, port, folder
        self._open = contextlib.ExitStack()

    def stream(self, path: str, **headers: str) -> http.client.HTTPResponse:
        """Open an event stream and read its first line."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        self._open.callback(connection.close)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
        assert answer.readline() == b"retry: 2000\n"
        return answer

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The document of one response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(
                method, path, None if body is None else json.dumps(body), {"content-type": "application/json"}
            )
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status < 300, text
            return json.loads(text)

    def get(self, path: str, **headers: str) -> http.client.HTTPResponse:
        """One response, whatever its status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        self._open.callback(connection.close)
        connection.request("GET", path, headers=headers)
        return connection.getresponse()

    def is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self, how: signal.Signals = signal.SIGTERM) -> float:
        """Seconds until the program ends after this signal."""
        began = time.monotonic()
        self.popen.send_signal(how)
        self.popen.wait(PATIENCE)
        return time.monotonic() - began

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def close(self) -> None:
        self._open.close()
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()


@contextlib.contextmanager
def running(words: list[str], folder: Path, **environment: str) -> Iterator[Process]:
    """Run ``python -m`` with these arguments, on a socket that already listens if the program accepts one."""
    with listening("127.0.0.1", 0) as sock, (folder / "log").open("wb") as log:
        fd, port = sock.fileno(), sock.getsockname()[1]
        inherits = any("{fd}" in word for word in words)
        if not inherits:
            sock.close()
        popen = subprocess.Popen(
            [sys.executable, "-m", *(word.format(fd=fd, port=port) for word in words)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder), **environment},
            stdout=log,
            stderr=log,
            pass_fds=[fd] if inherits else [],
            start_new_session=True,
        )
        sock.close()
        process = Process(popen, port, folder)
        try:
            if any("{port}" in word for word in words):
                until(lambda: process.is_listening() or popen.poll() is not None, "it listens", PATIENCE)
            yield process
        finally:
            process.close()


def limit(seconds: float = LIMIT) -> float:
    """The limit scaled by the load of this machine."""
    return seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


CASES = [
    *((name, signal.SIGTERM) for name in PROGRAMS),
    ("uvicorn", signal.SIGINT),
    ("granian", signal.SIGINT),
]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_open_streams_do_not_block_a_stop(name: str, how: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "site_with_jobs.py").write_text(SITE)
    url = f"sqlite:///{tmp_path}/jobs.db"
    with running(PROGRAMS[name], tmp_path, JOBS=url) as process:
        if name.startswith("granian"):
            # A granian worker loses a SIGTERM that it receives while it starts, and then never ends.
            until(lambda: "Started worker-" in process.log(), "the worker runs", PATIENCE)
        streams = [process.stream("/ops/live") for _ in range(3)] + [process.stream("/ops/api/events")]
        id = process.request("POST", "/ops/api/jobs", {"task": "print_book"})["id"]
        # A worker hands a job back that is recorded as running and has not begun.
        until((tmp_path / "begun").exists, "the job has begun")
        seconds = process.stop(how)
        ended = [stream.read() for stream in streams]
        log = process.log()
    print(f"{name}: {how.name} to exit {seconds:.2f} s")
    assert seconds < limit(SLOWER.get(name, LIMIT)), log
    assert len(ended) == 4
    assert list(tmp_path.glob("drained-*")), log
    with App(url) as app:
        assert app.jobs.get(id).status == "completed"


def test_a_server_stops_after_its_maximum_number_of_requests(tmp_path: Path) -> None:
    (tmp_path / "site_with_jobs.py").write_text(SITE)
    words = [*PROGRAMS["uvicorn"], "--limit-max-requests", "1"]
    with running(words, tmp_path, JOBS="memory://") as process:
        process.stream("/ops/live")
        assert process.request("GET", "/ops/livez")["status"]
        began = time.monotonic()
        assert process.popen.wait(PATIENCE) == 0
        assert time.monotonic() - began < limit()
    assert list(tmp_path.glob("drained-*"))


def test_a_litestar_application_streams_and_stops(tmp_path: Path) -> None:
    (tmp_path / "site_with_jobs.py").write_text(SITE)
    (tmp_path / "in_litestar.py").write_text(IN_LITESTAR)
    with running(["uvicorn", "--fd", "{fd}", "in_litestar:site"], tmp_path, JOBS="memory://") as process:
        stream = process.stream("/ops/live")
        process.request("POST", "/ops/api/jobs", {"task": "print_book"})
        until(lambda: stream.readline() == b"event: change\n", "the change is announced")
        seconds = process.stop()
        log = process.log()
    assert seconds < limit(), log


def test_the_fastapi_example_stops(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    words = [
        "uvicorn",
        "--fd",
        "{fd}",
        "--factory",
        "--app-dir",
        str(ROOT / "examples/fastapi_app"),
        "shop:create",
    ]
    with running(words, tmp_path, SHOP=url) as process:
        assert process.request("GET", "/orders") == []
        with App(f"{url}?shared=1") as app:
            secret = app.keys.create("ann", role="viewer").secret
        process.stream("/background/api/events", authorization=f"Bearer {secret}")
        seconds = process.stop()
        log = process.log()
    assert seconds < limit(), log
    assert "Application shutdown complete" in log


@pytest.mark.parametrize("command", ["serve", "up"])
def test_our_own_servers_stop(command: str, tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    words = ["tidemill", command, shop.where, "--port", "0", "--json"]
    with running(words, tmp_path) as process:
        started = until(lambda: '"started"' in process.log() and process.log(), "it has started", PATIENCE)
        line = next(line for line in started.splitlines() if '"started"' in line)
        facts = json.loads(line)["started"]
        process.port = urlsplit(facts["url"]).port or 0
        process.stream("/api/events", authorization=f"Bearer {facts['token']}")
        seconds = process.stop()
        log = process.log()
    print(f"tidemill {command}: SIGTERM to exit {seconds:.2f} s")
    (line,) = [line for line in log.splitlines() if "Application startup complete" in line]
    assert " uvicorn [" in line
    assert "uvicorn.error" not in log
    assert seconds < limit(), log
