"""Benchmark of what open tabs of the dashboard cost the server while jobs change.

    python3 dev.py bench tabs [--store postgres|sqlite] [--tabs 50] [--changes 1000] [--seconds 30] [--pages /jobs,/]

Each tab does what the script of a page does: it holds the stream of changes open, and after a change it fetches the page, at most
once in 600 ms. One process enqueues jobs at half the given rate, and a worker finishes them. The benchmark reports the processor time of the
server with and without the tabs, and what a tab fetches. Everything runs on this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from bench.dashboard import application, worker
from bench.drain import drain, fill
from bench.http import Server
from tests.servers.postgres import running_postgres

from tidemill.app import App

AIM = 5.0
"""Target: per cent of one core for all tabs."""

BYTES_AIM = 10_000
"""Target: bytes per second of one tab."""

PACE, SLOWEST = 0.6, 8.0
"""Seconds between two fetches of a tab: at least, and at most while the server asks it to come back later."""

PEOPLE = 5
"""Number of people, each with a session, who share the tabs."""

PART = 0.05
"""Seconds between two writes of the process that enqueues jobs."""


def serve(url: str) -> None:
    """Run the server process."""
    with application(url) as app:
        app.serve(
            "127.0.0.1",
            0,
            announce=lambda serving: print(json.dumps({"url": serving.url, "pid": os.getpid()}), flush=True),
        )


def change(url: str, rate: int, seconds: float) -> None:
    """Enqueue half as many jobs as there are changes; a worker finishes them. Print the number of changes."""
    with application(url) as app:
        from bench.dashboard_app import send_email

        made, began = 0, time.monotonic()
        while (gone := time.monotonic() - began) < seconds:
            due = int(rate * gone) // 2 - made
            send_email.enqueue_many({"user_id": number, "email": "a@example.com"} for number in range(due))
            made += due
            time.sleep(PART)
        waiting = app.jobs.count(status=["pending", "claimed", "running"])
        print(json.dumps({"changes": 2 * made - waiting}), flush=True)


@contextlib.contextmanager
def server(url: str) -> Iterator[Server]:
    with application(url) as app:
        key = app.keys.create("bench", role="super_admin").secret
        command = [sys.executable, "-m", "bench.tabs", "--serve", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                answer = json.loads(process.stdout.readline())
                yield Server(answer["url"], key, answer["pid"])
            finally:
                process.terminate()
                process.wait(30)


def sign_in(place: Server) -> str:
    """Return the cookie of a new session."""
    line = _line(place)
    form = {"content-type": "application/x-www-form-urlencoded"}
    line.request("POST", "/sign-in", urlencode({"key": place.key}), form)
    answer = line.getresponse()
    answer.read()
    line.close()
    assert answer.status == 303, answer.status
    return str(answer.headers["set-cookie"]).partition(";")[0]


def _line(place: Server) -> http.client.HTTPConnection:
    where = urlsplit(place.url)
    return http.client.HTTPConnection(str(where.hostname), where.port, timeout=60)


@dataclass
class Tab:
    """One open page: a stream of changes, and a fetch after a change."""

    place: Server
    cookie: str
    path: str
    fetched: int = 0
    postponed: int = 0
    bytes: int = 0
    other: dict[int, int] = field(default_factory=dict)
    _changed: threading.Event = field(default_factory=threading.Event)
    _closed: threading.Event = field(default_factory=threading.Event)
    _stream: http.client.HTTPConnection | None = None

    def open(self) -> None:
        """Load the page, open the stream, and follow it on two threads."""
        self._fetch({}).read()
        self._stream = _line(self.place)
        self._stream.request("GET", "/live", headers={"cookie": self.cookie, "accept": "text/event-stream"})
        answer = self._stream.getresponse()
        assert answer.status == 200, answer.status
        threading.Thread(target=self._listen, args=[answer], daemon=True).start()
        threading.Thread(target=self._follow, daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        self._changed.set()
        if self._stream is not None and self._stream.sock is not None:
            # A close would wait for the thread that reads.
            self._stream.sock.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Set the counts to zero."""
        self.fetched = self.postponed = self.bytes = 0

    def _listen(self, answer: http.client.HTTPResponse) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError, http.client.HTTPException):
            while line := answer.readline():
                self.bytes += len(line)
                if line.startswith(b"event: change"):
                    self._changed.set()

    def _follow(self) -> None:
        least, line = PACE, _line(self.place)
        while self._changed.wait() and not self._closed.is_set():
            self._changed.clear()
            answer = self._fetch({"x-tidemill-live": "1"}, line)
            size = len(answer.read())
            if answer.status == 200:
                self.fetched += 1
                self.bytes += size
                least = PACE
            elif answer.status in (204, 503):
                self.postponed += 1
                self._changed.set()
                least = min(2 * least, SLOWEST)
            else:
                self.other[answer.status] = self.other.get(answer.status, 0) + 1
            self._closed.wait(least)
        line.close()

    def _fetch(
        self, headers: dict[str, str], line: http.client.HTTPConnection | None = None
    ) -> http.client.HTTPResponse:
        line = line or _line(self.place)
        asked = {"cookie": self.cookie, "accept-encoding": "gzip", **headers}
        try:
            line.request("GET", self.path, headers=asked)
            return line.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):
            # The server closes an idle connection; a browser opens another one, too.
            line.close()
            line.request("GET", self.path, headers=asked)
            return line.getresponse()


@contextlib.contextmanager
def opened(place: Server, paths: list[str], number: int) -> Iterator[list[Tab]]:
    """Keep this many tabs open."""
    cookies = [sign_in(place) for _ in range(min(PEOPLE, max(number, 1)))]
    tabs = [Tab(place, cookies[at % len(cookies)], paths[at % len(paths)]) for at in range(number)]
    try:
        for tab in tabs:
            tab.open()
        yield tabs
    finally:
        for tab in tabs:
            tab.close()


def measure(url: str, place: Server, tabs: list[Tab], rate: int, seconds: float) -> dict[str, Any]:
    """Return the cost of the server while jobs change at this rate, and what the tabs fetch."""
    for tab in tabs:
        tab.reset()
    began, before = time.monotonic(), place.cpu()
    changes = 0
    if rate:
        command = [sys.executable, "-m", "bench.tabs", "--change", url, str(rate), str(seconds)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        changes = json.loads(done.stdout)["changes"]
    else:
        time.sleep(seconds)
    lasted = time.monotonic() - began
    cost = place.cpu() - before
    number = max(len(tabs), 1)
    refused = {status: count for tab in tabs for status, count in tab.other.items()}
    assert not refused, f"answers that no tab expects: {refused}"
    return {
        "tabs": len(tabs),
        "changes_per_second": changes / lasted,
        "core_percent": 100 * cost / lasted,
        "fetches_per_tab": sum(tab.fetched for tab in tabs) / number / lasted,
        "postponed_per_tab": sum(tab.postponed for tab in tabs) / number / lasted,
        "bytes_per_tab": sum(tab.bytes for tab in tabs) / number / lasted,
    }


def run(url: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    with App(url) as app:
        app.store.migrate()
        fill(app.store, options.jobs)
        drain(app.store, options.jobs)
    rows = []
    print(
        f"{'tabs':>5}{'changes/s':>11}{'% of a core':>13}{'fetches/s':>11}{'later/s':>9}{'bytes/s':>9}   of one tab"
    )
    with server(url) as place, worker(url, 1):
        for number, rate in (
            (0, options.changes),
            (1, options.changes),
            (options.tabs, 0),
            (options.tabs, options.changes),
        ):
            with opened(place, options.pages.split(","), number) as tabs:
                row = measure(url, place, tabs, rate, options.seconds)
            rows.append(row)
            print(
                f"{row['tabs']:>5}{row['changes_per_second']:>11,.0f}{row['core_percent']:>13.1f}"
                f"{row['fetches_per_tab']:>11.2f}{row['postponed_per_tab']:>9.2f}{row['bytes_per_tab']:>9,.0f}",
                flush=True,
            )
    cost = rows[-1]["core_percent"] - rows[0]["core_percent"]
    print(
        f"{options.tabs} tabs cost {cost:.1f} % of a core (target: {AIM:.0f}), one fetches at most {BYTES_AIM:,} bytes/s"
    )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--postgres", help="URL of a database to write to (default: a private server)")
    parser.add_argument("--tabs", type=int, default=50)
    parser.add_argument("--changes", type=int, default=1_000, help="changes of jobs per second")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of each measurement")
    parser.add_argument(
        "--pages", default="/jobs,/,/queues,/errors,/workers", help="pages of the tabs, in turn"
    )
    parser.add_argument("--jobs", type=int, default=10_000, help="ended jobs at the start")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--change", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if options.change:
        url, rate, seconds = options.change
        change(url, int(rate), float(seconds))
        return
    with contextlib.ExitStack() as stack:
        if options.store == "sqlite":
            url = f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/jobs.db"
        else:
            url = options.postgres or stack.enter_context(running_postgres()).url()
        rows = run(url, options)
    if options.json:
        options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
