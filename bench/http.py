"""Benchmark of one HTTP server process on a store with a million jobs.

    python3 dev.py bench http [--postgres URL] [--jobs 1000000] [--seconds 10] [--connections 32] [--streams 1000]

Creates jobs, reads one job, and lists fifty jobs by task and state, over keep-alive connections. Then the same with open event
streams and slow clients, and a body of a gigabyte, which the server must reject early. It writes to the database: use a separate
one. Processor time per request is that of the server, and is comparable between busy and idle machines.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from bench.http_load import Load, Speed, drive
from bench.http_side_load import giant, slow_clients, streams
from bench.seeds import finished_postgres
from tests.servers.postgres import running_postgres

from tidemill.app import App

AIMS = {"POST /api/jobs": 1_000, "GET /api/jobs/{id}": 1_000, "list of 50": 300}
SLOW = 50
ANY = 1_000_000
"""More jobs than any request asks for."""


@dataclass(frozen=True)
class Server:
    """The measured process."""

    url: str
    key: str
    pid: int

    def cpu(self) -> float:
        """Return the processor seconds so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Return the resident memory in MiB."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def application(url: str) -> App:
    app = App(url)

    @app.task(name="send_email")
    def send_email(user_id: int, email: str) -> None: ...

    return app


def serve(url: str) -> None:
    """Run the server process."""
    with application(url) as app:
        app.serve(
            "127.0.0.1",
            0,
            announce=lambda serving: print(json.dumps({"url": serving.url, "pid": os.getpid()}), flush=True),
            create_rate=float(ANY),
            create_burst=ANY,
        )


@contextlib.contextmanager
def server(url: str) -> Iterator[Server]:
    with application(url) as app:
        key = app.keys.create("bench", role="super_admin").secret
    command = [sys.executable, "-m", "bench.http", "--serve", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            answer = json.loads(process.stdout.readline())
            yield Server(answer["url"], key, answer["pid"])
        finally:
            process.terminate()
            process.wait(30)


def prepare(url: str, jobs: int) -> list[str]:
    """Seed the store, and return the ids of some jobs."""
    with application(url) as app:
        app.store.migrate()
    with psycopg.connect(url, autocommit=True) as connection:
        there = connection.execute("select count(*) from tidemill.history").fetchone()
    assert there is not None
    if there[0] < jobs:
        finished_postgres(url, jobs - there[0])
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "select id from tidemill.history tablesample system (1) limit 500"
        ).fetchall()
        rows = rows or connection.execute("select id from tidemill.history limit 500").fetchall()
    return [str(row[0]) for row in rows]


def loads(ids: list[str]) -> list[Load]:
    body = json.dumps({"task": "send_email", "args": {"user_id": 123, "email": "a@example.com"}})
    return [
        Load("POST /api/jobs", "POST", ["/api/jobs"], body),
        Load("GET /api/jobs/{id}", "GET", [f"/api/jobs/{id}" for id in ids]),
        Load("list of 50", "GET", ["/api/jobs?task=send_email&status=completed&limit=50"]),
    ]


def measure(made: Server, load: Load, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one load: throughput, latency and cost."""
    # Warm up.
    drive(load, made.url, made.key, 1, options.connections, wrk=not options.own)
    before = made.cpu()
    speed: Speed = drive(load, made.url, made.key, options.seconds, options.connections, wrk=not options.own)
    cost = 1e6 * (made.cpu() - before) / max(speed.requests, 1)
    return {**vars(speed), "cpu_us": cost}


def show(title: str, figures: dict[str, dict[str, Any]]) -> None:
    print(f"\n{title}\n{'':<22}{'req/s':>8}{'aim':>8}{'p50 ms':>9}{'p99 ms':>9}{'cpu µs':>9}{'errors':>8}")
    for name, row in figures.items():
        print(
            f"{name:<22}{row['rate']:>8,.0f}{AIMS[name]:>8,}{row['p50']:>9.1f}{row['p99']:>9.1f}"
            f"{row['cpu_us']:>9,.0f}{row['errors']:>8}"
        )


def run(url: str, options: argparse.Namespace) -> dict[str, Any]:
    ids = prepare(url, options.jobs)
    with server(url) as made:
        alone = {load.name: measure(made, load, options) for load in loads(ids)}
        show(f"{options.jobs:,} jobs stored, {options.connections} connections", alone)
        with streams(made.url, made.key, options.streams) as opened, slow_clients(made.url, made.key, SLOW):
            beside = {load.name: measure(made, load, options) for load in loads(ids)}
            show(f"with {opened:,} event streams and {SLOW} slow clients", beside)
        before, cuts = made.memory(), []
        for chunked in (False, True):
            cut = giant(made.url, made.key, chunked=chunked)
            cuts.append(vars(cut))
            how = "in chunks" if chunked else "with Content-Length"
            print(f"a gigabyte {how}: {cut.status} after {cut.sent / 2**20:.1f} MiB and {cut.seconds:.2f} s")
        grown = made.memory() - before
        print(f"the memory of the server grew by {grown:.0f} MiB to {made.memory():.0f} MiB")
    return {"alone": alone, "beside": beside, "streams": opened, "cuts": cuts, "grown_mib": grown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--postgres", help="URL of a database to write to (default: a private server)")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--own", action="store_true", help="use the built-in loader even if wrk is installed")
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
