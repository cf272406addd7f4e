"""How fast the dashboard's pages are answered with a million jobs in the store, at rest and while a worker drains at full speed.

    python3 dev.py bench dashboard [--postgres URL] [--jobs 1000000] [--times 20] [--backlog 300000] [--processes 2]

Each page is asked for one after the other by one person who is signed in, over a connection that is kept alive; what is told is
the time until the whole page was there. The database is written to: give one of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from bench.drain import fill
from bench.http import prepare

from tidemill.app import App
from tidemill.domain.states import JobState
from tidemill.testing.postgres import running_postgres

AIM = 300.0
"""Milliseconds that a page may take."""

APP = "bench.dashboard_app:app"
FAILURES = 300
PATIENCE = 120.0


class Place(NamedTuple):
    """A server of the pages, and its key."""

    url: str
    key: str


def application(url: str) -> App:
    os.environ["TIDEMILL_STORE"] = url
    from bench.dashboard_app import app

    return app


def serve(url: str) -> None:
    """The server's own process."""
    with application(url) as app:
        app.serve("127.0.0.1", 0, announce=lambda serving: print(json.dumps(serving.url), flush=True))


@contextlib.contextmanager
def server(url: str, key: str) -> Iterator[Place]:
    command = [sys.executable, "-m", "bench.dashboard", "--serve", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Place(json.loads(process.stdout.readline()), key)
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def worker(url: str, processes: int) -> Iterator[None]:
    """A worker at full speed."""
    command = [
        sys.executable,
        "-m",
        "tidemill",
        "worker",
        APP,
        "--processes",
        str(processes),
        "--log-level",
        "error",
    ]
    environment = {**os.environ, "TIDEMILL_STORE": url}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def pages(app: App, ids: list[str]) -> dict[str, str]:
    """What is measured, by name."""
    failed = app.jobs.list(status=JobState.FAILED, limit=1).items
    schedule = app.schedules.list()[0]
    return {
        "overview, an hour": "/",
        "overview, a day": "/?window=24h",
        "jobs": "/jobs",
        "jobs that run": "/jobs?state=running",
        "jobs that failed": "/jobs?state=failed",
        "jobs by task and state": "/jobs?task=send_email&state=completed",
        "jobs by words": "/jobs?text=a%40example.com",
        "jobs by words, not there": "/jobs?text=nowhere-to-be-found",
        "a job": f"/jobs/{ids[0]}",
        "a job that failed": f"/jobs/{failed[0].id}",
        "errors": "/errors",
        "schedules": "/schedules",
        "a schedule": f"/schedules/{schedule.id}",
        "tasks": "/tasks",
        "a task": "/tasks/send_email",
        "queues": "/queues",
        "a queue": "/queues/default",
        "workers": "/workers",
        "tenants": "/tenants",
        "audit": "/audit",
        "settings": "/settings",
    }


class Person:
    """Somebody who is signed in."""

    def __init__(self, place: Place) -> None:
        where = urlsplit(place.url)
        self._line = http.client.HTTPConnection(str(where.hostname), where.port, timeout=PATIENCE)
        form = {"content-type": "application/x-www-form-urlencoded"}
        self._line.request("POST", "/sign-in", urlencode({"key": place.key}), form)
        answer = self._line.getresponse()
        answer.read()
        assert answer.status == 303, answer.status
        self._cookie = str(answer.headers["set-cookie"]).partition(";")[0]

    def open(self, path: str) -> tuple[float, int, int]:
        """Milliseconds, status and size of a page."""
        began = time.perf_counter()
        self._line.request("GET", path, headers={"cookie": self._cookie})
        answer = self._line.getresponse()
        size = len(answer.read())
        return 1000 * (time.perf_counter() - began), answer.status, size

    def close(self) -> None:
        self._line.close()


def measure(place: Place, chosen: dict[str, str], times: int) -> dict[str, dict[str, Any]]:
    """Every page so many times, after one that warms it."""
    found: dict[str, dict[str, Any]] = {}
    with contextlib.closing(Person(place)) as person:
        for name, path in chosen.items():
            person.open(path)
            taken = [person.open(path) for _ in range(times)]
            each = sorted(milliseconds for milliseconds, _, _ in taken)
            found[name] = {
                "path": path,
                "median": each[len(each) // 2],
                "p95": each[math.ceil(0.95 * len(each)) - 1],
                "status": sorted({status for _, status, _ in taken}),
                "bytes": taken[-1][2],
            }
    return found


def show(title: str, found: dict[str, dict[str, Any]]) -> None:
    print(f"\n{title}\n{'':<26}{'median ms':>10}{'p95 ms':>9}{'aim':>6}{'kB':>7}  status")
    for name, row in found.items():
        mark = " " if row["p95"] <= AIM else "!"
        print(
            f"{name:<26}{row['median']:>10.1f}{row['p95']:>9.1f}{AIM:>6.0f}{row['bytes'] / 1000:>7.0f}"
            f"{mark} {', '.join(map(str, row['status']))}"
        )


def run(url: str, options: argparse.Namespace) -> dict[str, Any]:
    ids = prepare(url, options.jobs)
    with application(url) as app:
        app.reconcile()
        from bench.dashboard_app import charge_card

        charge_card.enqueue_many({"order": number} for number in range(FAILURES))
        app.testing().drain()
        key = app.keys.create("bench", role="super_admin").secret
        chosen = pages(app, ids)
        with server(url, key) as place:
            alone = measure(place, chosen, options.times)
            show(f"{options.jobs:,} jobs stored", alone)
            fill(app.store, options.backlog)
            with worker(url, options.processes):
                _begun(app)
                began, before = time.perf_counter(), app.jobs.count(status=JobState.PENDING)
                beside = measure(place, chosen, options.times)
                left = app.jobs.count(status=JobState.PENDING)
                rate = (before - left) / (time.perf_counter() - began)
            show(f"while {rate:,.0f} jobs a second are drained, of which {left:,} were left", beside)
    return {"alone": alone, "beside": beside, "rate": rate, "left": left}


def _begun(app: App) -> None:
    """Wait until the worker is at it."""
    ends, first = time.perf_counter() + PATIENCE, app.jobs.count(status=JobState.PENDING)
    while first and app.jobs.count(status=JobState.PENDING) == first:
        if time.perf_counter() > ends:
            raise RuntimeError("the worker did not begin")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--postgres", help="a database to write in; a private server unless given")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--backlog", type=int, default=300_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write what was found there, too")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    with contextlib.ExitStack() as stack:
        url = options.postgres or stack.enter_context(running_postgres()).url()
        found = run(url, options)
    if options.json:
        options.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
