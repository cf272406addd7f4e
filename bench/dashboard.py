"""Benchmark of the dashboard's pages on a store with a million jobs.

    python3 dev.py bench dashboard [--postgres URL] [--jobs 1000000] [--times 20] [--backlog 300000] [--processes 2]

One signed-in client requests the pages one after the other over a keep-alive connection, first with an idle store, then while a
worker drains jobs at full speed. The benchmark reports the time until the whole page has arrived. It writes to the database: use
a separate one.
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
from tests.servers.postgres import running_postgres

from tidemill.app import App
from tidemill.domain.states import JobState

AIM = 300.0
"""Target times of pages, in milliseconds."""

APP = "bench.dashboard_app:app"
FAILURES = 300
PATIENCE = 120.0


class Target(NamedTuple):
    """A dashboard server and its API key."""

    url: str
    key: str


def application(url: str) -> App:
    os.environ["TIDEMILL_STORE"] = url
    from bench.dashboard_app import app

    return app


def serve(url: str) -> None:
    """Run the server process."""
    with application(url) as app:
        app.serve("127.0.0.1", 0, announce=lambda serving: print(json.dumps(serving.url), flush=True))


@contextlib.contextmanager
def server(url: str, key: str) -> Iterator[Target]:
    command = [sys.executable, "-m", "bench.dashboard", "--serve", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Target(json.loads(process.stdout.readline()), key)
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def worker(url: str, processes: int) -> Iterator[None]:
    """Run a worker at full speed."""
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
    """Return the measured pages by name."""
    failed = app.jobs.list(status=JobState.FAILED, limit=1).items
    schedule = app.schedules.list()[0]
    error = app.errors.list(limit=1)[0]
    return {
        "overview, an hour": "/",
        "overview, a day": "/?window=24h",
        "jobs": "/jobs",
        "running jobs": "/jobs?state=running",
        "failed jobs": "/jobs?state=failed",
        "jobs by task and state": "/jobs?task=send_email&state=completed",
        "jobs by text": "/jobs?text=a%40example.com",
        "jobs by text, no match": "/jobs?text=nowhere-to-be-found",
        "a job": f"/jobs/{ids[0]}",
        "a failed job": f"/jobs/{failed[0].id}",
        "errors": "/errors",
        "an error": f"/errors/{error.fingerprint}",
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


class Client:
    """A signed-in client."""

    def __init__(self, place: Target) -> None:
        where = urlsplit(place.url)
        self._line = http.client.HTTPConnection(str(where.hostname), where.port, timeout=PATIENCE)
        form = {"content-type": "application/x-www-form-urlencoded"}
        self._line.request("POST", "/sign-in", urlencode({"key": place.key}), form)
        answer = self._line.getresponse()
        answer.read()
        assert answer.status == 303, answer.status
        self._cookie = str(answer.headers["set-cookie"]).partition(";")[0]

    def open(self, path: str) -> tuple[float, int, int]:
        """Return milliseconds, status and size of a page."""
        began = time.perf_counter()
        self._line.request("GET", path, headers={"cookie": self._cookie})
        answer = self._line.getresponse()
        size = len(answer.read())
        return 1000 * (time.perf_counter() - began), answer.status, size

    def close(self) -> None:
        self._line.close()


def measure(place: Target, chosen: dict[str, str], times: int) -> dict[str, dict[str, Any]]:
    """Request every page the given number of times, after one warm-up request."""
    figures: dict[str, dict[str, Any]] = {}
    with contextlib.closing(Client(place)) as person:
        for name, path in chosen.items():
            person.open(path)
            taken = [person.open(path) for _ in range(times)]
            durations = sorted(milliseconds for milliseconds, _, _ in taken)
            figures[name] = {
                "path": path,
                "median": durations[len(durations) // 2],
                "p95": durations[math.ceil(0.95 * len(durations)) - 1],
                "status": sorted({status for _, status, _ in taken}),
                "bytes": taken[-1][2],
            }
    return figures


def show(title: str, figures: dict[str, dict[str, Any]]) -> None:
    print(f"\n{title}\n{'':<26}{'median ms':>10}{'p95 ms':>9}{'target':>8}{'kB':>7}  status")
    for name, row in figures.items():
        mark = " " if row["p95"] <= AIM else "!"
        print(
            f"{name:<26}{row['median']:>10.1f}{row['p95']:>9.1f}{AIM:>8.0f}{row['bytes'] / 1000:>7.0f}"
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
            show(f"while {rate:,.0f} jobs/s are drained ({left:,} jobs were left)", beside)
    return {"alone": alone, "beside": beside, "rate": rate, "left": left}


def _begun(app: App) -> None:
    """Wait until the worker has started a job."""
    ends, first = time.perf_counter() + PATIENCE, app.jobs.count(status=JobState.PENDING)
    while first and app.jobs.count(status=JobState.PENDING) == first:
        if time.perf_counter() > ends:
            raise RuntimeError("the worker did not start")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--postgres", help="URL of a database to write to (default: a private server)")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--backlog", type=int, default=300_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    with contextlib.ExitStack() as stack:
        url = options.postgres or stack.enter_context(running_postgres()).url()
        results = run(url, options)
    if options.json:
        options.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
