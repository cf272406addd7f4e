"""Modules and Python calls on the path of one job, on PostgreSQL.

    python3 dev.py bench path [--postgres URL] [--rounds 5] [--json]

It traces one ``enqueue``, one job from its wake-up to its end in an embedded worker, and one ``POST /api/jobs``. Every
figure is the smallest of several rounds, so that a heartbeat in between does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tests.servers.postgres import running_postgres

import tidemill
from tidemill import App, BoundTask, Role

PACKAGE = Path(tidemill.__file__).parent
WARM_UP = 3
PAUSE = 0.05
"""Seconds between two rounds: wake-ups in quick succession are merged, which takes another path."""

EMAIL = "a@example.com"


class Trace(NamedTuple):
    """The modules of Tidemill that ran code, and the number of Python calls: in Tidemill, and in all packages."""

    modules: tuple[str, ...]
    own_calls: int
    calls: int


class Tracer:
    """Counts Python calls while it is on: in the calling thread, or in every thread that started after ``install``."""

    def __init__(self) -> None:
        self._on = False
        self._files: dict[str, int] = {}

    def install(self) -> None:
        """Trace all threads that start from now on."""
        threading.setprofile(self._profile)

    def uninstall(self) -> None:
        """Stop tracing new threads."""
        threading.setprofile(None)

    @contextmanager
    def counting(self, *, here: bool = True) -> Iterator[None]:
        """Count inside the block; with ``here``, also in the calling thread."""
        self._files.clear()
        if here:
            sys.setprofile(self._profile)
        self._on = True
        try:
            yield
        finally:
            self._on = False
            if here:
                sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if self._on and event == "call":
            name = frame.f_code.co_filename
            self._files[name] = self._files.get(name, 0) + 1

    def found(self) -> Trace:
        """Return the counts of the last block."""
        files = dict(self._files)
        own = {
            Path(name).relative_to(PACKAGE): calls
            for name, calls in files.items()
            if Path(name).is_relative_to(PACKAGE)
        }
        modules = (".".join(("tidemill", *path.with_suffix("").parts)) for path in own)
        return Trace(tuple(sorted(modules)), sum(own.values()), sum(files.values()))


def smallest(rounds: int, measure: Callable[[], Trace]) -> Trace:
    """Warm up, then return the round with the fewest modules and calls."""
    results = []
    for _ in range(WARM_UP + rounds):
        results.append(measure())
        time.sleep(PAUSE)
    return min(results[WARM_UP:], key=lambda trace: (len(trace.modules), trace.calls))


def of_enqueue(task: BoundTask[Any, Any], rounds: int) -> Trace:
    """Trace one call of ``enqueue``."""
    tracer = Tracer()

    def once() -> Trace:
        with tracer.counting():
            task.enqueue(user_id=1, email=EMAIL)
        return tracer.found()

    return smallest(rounds, once)


def of_job(app: App, task: BoundTask[Any, Any], rounds: int) -> Trace:
    """Trace the worker's threads from the enqueue, whose wake-up they receive, to the end of the job."""
    tracer = Tracer()
    ended = threading.Event()

    def once() -> Trace:
        ended.clear()
        with tracer.counting(here=False):
            task.enqueue(user_id=1, email=EMAIL)
            if not ended.wait(30):
                raise TimeoutError("the job did not end within 30 seconds")
        return tracer.found()

    tracer.install()
    try:
        with app.on("job.finished", lambda _: ended.set()), app.worker(concurrency=1):
            return smallest(rounds, once)
    finally:
        tracer.uninstall()


def of_request(app: App, task: BoundTask[Any, Any], rounds: int) -> Trace:
    """Trace one ``POST /api/jobs``, from the ASGI call to its last message; the threads of the API included."""
    # Imported here: the API loads OpenTelemetry where it is installed, and its trace ids would be on every other path.
    from tidemill.rest import ApiSettings, create_api

    tracer = Tracer()
    key = app.keys.create("bench", role=Role.ADMIN).secret
    body = json.dumps({"task": task.name, "args": {"user_id": 1, "email": EMAIL}}).encode()

    async def all_rounds() -> Trace:
        api = create_api(app, settings=ApiSettings())
        results: list[Trace] = []
        for _ in range(WARM_UP + rounds):
            with tracer.counting():
                status = await _post(api, key, body)
            if status != 201:
                raise RuntimeError(f"POST /api/jobs answered {status}")
            results.append(tracer.found())
        return min(results[WARM_UP:], key=lambda trace: (len(trace.modules), trace.calls))

    tracer.install()
    try:
        return asyncio.run(all_rounds())
    finally:
        tracer.uninstall()


async def _post(api: Any, key: str, body: bytes) -> int:
    headers = [
        (b"host", b"127.0.0.1"),
        (b"authorization", f"Bearer {key}".encode()),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/api/jobs",
        "raw_path": b"/api/jobs",
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 4711),
        "server": ("127.0.0.1", 8080),
    }
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])
    status = 0

    async def receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    await api(scope, receive, send)
    return status


def measured(url: str, rounds: int) -> dict[str, Trace]:
    """Return all figures for the database at that URL."""
    with App(url, migrate=True) as app:

        @app.task(name="noop")
        def noop(user_id: int, email: str) -> None: ...

        enqueue = of_enqueue(noop, rounds)
        app.testing().drain()
        job = of_job(app, noop, rounds)
        return {"enqueue": enqueue, "job": job, "POST /api/jobs": of_request(app, noop, rounds)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", help="URL of an empty database; otherwise a private server is started")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the figures and the modules as JSON")
    options = parser.parse_args()
    with ExitStack() as stack:
        url = options.postgres or stack.enter_context(running_postgres()).create_database("bench")
        results = measured(url, options.rounds)
    if options.json:
        print(json.dumps({name: trace._asdict() for name, trace in results.items()}, indent=2))
        return
    print(f"{'':<16}{'modules':>9}{'own calls':>11}{'all calls':>11}")
    for name, trace in results.items():
        print(f"{name:<16}{len(trace.modules):>9}{trace.own_calls:>11}{trace.calls:>11}")


if __name__ == "__main__":
    main()
