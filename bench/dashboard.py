"""Benchmark of the dashboard's pages on a store with a million jobs.

    python3 dev.py bench dashboard [--store sqlite|postgres] [--postgres URL] [--jobs 1000000] [--times 20] [--backlog 300000]
                                   [--phase all|fill|idle|drain] [--pages TEXT]

One signed-in client requests every page over a keep-alive connection, first with an idle store, then while a worker drains jobs at
full speed. The benchmark reports the time until the whole page has arrived. The first request of each page counts: the server has
just started, and no page was requested before. It writes to the database: use a separate one.

``--phase fill`` stops after the store is filled. With the same ``--postgres`` or ``--sqlite``, ``--phase idle`` and
``--phase drain`` then measure one half each, so that only a measurement needs a quiet machine.
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
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from bench.drain import fill
from bench.http import prepare
from bench.seeds import finished_sqlite
from tests.servers.postgres import running_postgres

from tidemill.app import App
from tidemill.domain.cluster import Worker
from tidemill.domain.schedule_rules import Cron
from tidemill.domain.states import JobState
from tidemill.domain.worker_reports import SlotCounts, SupervisorReport, WorkerReport
from tidemill.ids import new_id

MEDIAN, AIM = 100.0, 300.0
"""Target times of every page in milliseconds: the median, and the 95th percentile with the first request."""

NOT_MEASURED = frozenset({
    "/live", "/go", "/sign-in", "/sign-in/sso", "/sign-in/callback",  # no pages of a signed-in person
    "/jobs/{id}/args", "/jobs/{id}/value",  # downloads
    "/jobs/{id}/delete", "/jobs/{id}/erase",  # a dialog about one job, as /jobs/{id}/again
    "/leases/release", "/settings/unset", "/settings/keys/revoke", "/settings/sessions",  # a few stored rows
})  # fmt: skip
"""The paths that accept GET and are left out."""

APP = "bench.dashboard_app:app"
FAILURES = 300
PATIENCE = 120.0


PAGES: dict[str, tuple[str, str]] = {
    "overview, an hour": ("/", "/"),
    "overview, a day": ("/", "/?window=24h"),
    "overview, a month by task": ("/", "/?window=30d&by=task"),
    "jobs": ("/jobs", "/jobs"),
    "jobs, oldest first": ("/jobs", "/jobs?sort=oldest"),
    "running jobs": ("/jobs", "/jobs?status=running"),
    "failed jobs": ("/jobs", "/jobs?status=failed"),
    "jobs by task and status": ("/jobs", "/jobs?task=send_email&status=completed"),
    "jobs by argument": ("/jobs", "/jobs?arg=user_id%3D123"),
    "jobs by argument, none": ("/jobs", "/jobs?arg=user_id%3D7"),
    "jobs by text": ("/jobs", "/jobs?text=a%40example.com"),
    "jobs by text, none": ("/jobs", "/jobs?text=nowhere-to-be-found"),
    "jobs with the panel": ("/jobs", "/jobs?job={failed}"),
    "an action on many jobs": ("/jobs/bulk", "/jobs/bulk?act=retry&task=charge_card&status=failed"),
    "a job": ("/jobs/{id}", "/jobs/{ended}"),
    "a failed job": ("/jobs/{id}", "/jobs/{failed}"),
    "a job again": ("/jobs/{id}/again", "/jobs/{failed}/again"),
    "errors": ("/errors", "/errors"),
    "an error": ("/errors/{fingerprint}", "/errors/{error}"),
    "flows": ("/flows", "/flows"),
    "a flow": ("/flows/{id}", "/flows/{flow}"),
    "batches": ("/batches", "/batches"),
    "logs": ("/logs", "/logs"),
    "alerts": ("/alerts", "/alerts"),
    "notifications": ("/notifications", "/notifications"),
    "schedules": ("/schedules", "/schedules"),
    "a schedule": ("/schedules/{id}", "/schedules/{schedule}"),
    "a schedule's form": ("/schedules/{id}/edit", "/schedules/{schedule}/edit"),
    "a schedule, run now": ("/schedules/{id}/run", "/schedules/{schedule}/run"),
    "a schedule, back-fill": ("/schedules/{id}/backfill", "/schedules/{schedule}/backfill"),
    "a schedule, remove": ("/schedules/{id}/remove", "/schedules/{schedule}/remove"),
    "a new schedule": ("/schedules/new", "/schedules/new"),
    "a schedule's preview": ("/schedules/preview", "/schedules/preview?kind=cron&cron=0+7+*+*+*"),
    "queues": ("/queues", "/queues"),
    "a queue": ("/queues/{name:path}", "/queues/default"),
    "pause everything": ("/queues/-/pause-all", "/queues/-/pause-all"),
    "a new limit": ("/queues/-/limit", "/queues/-/limit"),
    "a limit": ("/queues/-/limit/{name:path}", "/queues/-/limit/queue/default"),
    "tasks": ("/tasks", "/tasks"),
    "a task": ("/tasks/{name:path}", "/tasks/send_email"),
    "a task's settings": ("/tasks/-/settings/{name:path}", "/tasks/-/settings/send_email"),
    "workers": ("/workers", "/workers"),
    "a worker": ("/workers/{id}", "/workers/{worker}"),
    "a worker, drain": ("/workers/{id}/drain", "/workers/{worker}/drain"),
    "a worker, pause": ("/workers/{id}/pause", "/workers/{worker}/pause"),
    "a worker, scale": ("/workers/{id}/scale", "/workers/{worker}/scale"),
    "tenants": ("/tenants", "/tenants"),
    "a tenant, pause": ("/tenants/pause", "/tenants/pause?name=default"),
    "audit": ("/audit", "/audit"),
    "audit, verified": ("/audit/verify", "/audit/verify"),
    "archive": ("/archive", "/archive"),
    "settings": ("/settings", "/settings"),
    "API keys": ("/settings/keys", "/settings/keys"),
}
"""The measured pages by name: the declared path, and the address with the names of objects in braces."""


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


def addresses(app: App) -> dict[str, str]:
    """Return the addresses of the measured pages by name. A worker is registered for its page."""
    id, slots = new_id(), SlotCounts(10, 10, 1)
    # The form of its scale shows what its supervisor has reported.
    report = WorkerReport(slots, supervisor=SupervisorReport("standing by", 1, 1))
    idle = Worker(id, "standing by", concurrency=slots.total, supervisor=id, report=report)
    standing_by = app.store.register(idle, lease=timedelta(days=1))
    objects = {
        "ended": app.jobs.list(limit=1, sort="oldest").items[0].id,
        "failed": app.jobs.list(status=JobState.FAILED, limit=1).items[0].id,
        "schedule": app.schedules.get("evening-letter").id,
        "error": app.errors.list(limit=1)[0].fingerprint,
        "flow": app.flows.list(limit=1)[0].id,
        "worker": standing_by.id,
    }
    return {name: address.format(**objects) for name, (_, address) in PAGES.items()}


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
    """Request every page the given number of times."""
    figures: dict[str, dict[str, Any]] = {}
    with contextlib.closing(Client(place)) as person:
        for name, path in chosen.items():
            taken = [person.open(path) for _ in range(times)]
            durations = sorted(milliseconds for milliseconds, _, _ in taken)
            figures[name] = {
                "path": path,
                "first": taken[0][0],
                "median": durations[len(durations) // 2],
                "p95": durations[math.ceil(0.95 * len(durations)) - 1],
                "status": sorted({status for _, status, _ in taken}),
                "bytes": taken[-1][2],
            }
    return figures


def meets(row: dict[str, Any]) -> bool:
    """Whether a page meets the targets. The first request must not hide above the 95th percentile."""
    return bool(row["median"] <= MEDIAN and max(row["p95"], row["first"]) <= AIM)


def show(title: str, figures: dict[str, dict[str, Any]]) -> None:
    print(f"\n{title}\n{'':<27}{'median ms':>10}{'p95 ms':>9}{'first ms':>10}{'kB':>7}  status")
    for name, row in figures.items():
        print(
            f"{name:<27}{row['median']:>10.1f}{row['p95']:>9.1f}{row['first']:>10.1f}{row['bytes'] / 1000:>7.0f}"
            f"  {', '.join(map(str, row['status']))}{'' if meets(row) else '  over the target'}"
        )
    late = sum(not meets(row) for row in figures.values())
    print(
        f"{len(figures) - late} of {len(figures)} pages: median <= {MEDIAN:.0f} ms, p95 and first <= {AIM:.0f} ms"
    )


def prepare_sqlite(file: Path, jobs: int) -> None:
    """Seed a new SQLite store."""
    with App(f"sqlite:///{file}") as app:
        app.store.migrate()
        if not app.jobs.list(limit=1).items:
            finished_sqlite(file, jobs)


def add_objects(app: App) -> None:
    """Add what the pages show besides jobs: errors, a flow and a limit."""
    from bench.dashboard_app import charge_card, send_email

    app.reconcile()
    charge_card.enqueue_many({"order": number} for number in range(FAILURES))
    app.testing().drain()
    flow = app.flow("letters")
    flow.add(send_email, user_id=1, email="a@example.com")
    flow.add(send_email, user_id=2, email="a@example.com")
    flow.start()
    app.schedules.add(
        send_email, Cron("0 19 * * *"), "evening-letter", args={"user_id": 1, "email": "a@example.com"}
    )
    app.limits.set("queue/default", 100_000)


def add_backlog(app: App, wanted: int) -> None:
    """Enqueue jobs until as many as wanted are pending."""
    fill(app.store, max(0, wanted - app.jobs.count(status=JobState.PENDING)))


def run(url: str, options: argparse.Namespace) -> dict[str, Any]:
    """Fill the store and measure, or one of these."""
    results: dict[str, Any] = {}
    with application(url) as app:
        if options.phase in ("all", "fill"):
            add_objects(app)
        if options.phase == "fill":
            add_backlog(app, options.backlog)
            return results
        key = app.keys.create(f"bench {new_id()}", role="super_admin").secret
        chosen = {name: path for name, path in addresses(app).items() if options.pages in name}
        if options.phase in ("all", "idle"):
            with server(url, key) as place:
                results["alone"] = measure(place, chosen, options.times)
            show("the store is idle", results["alone"])
        if options.phase in ("all", "drain"):
            add_backlog(app, options.backlog)
            results |= during_a_drain(app, url, key, chosen, options)
    return results


def during_a_drain(
    app: App, url: str, key: str, chosen: dict[str, str], options: argparse.Namespace
) -> dict[str, Any]:
    """Measure while a worker drains, on a new server, so that the first requests are first requests again."""
    with server(url, key) as place, worker(url, options.processes):
        _begun(app)
        began, before = time.perf_counter(), app.jobs.count(status=JobState.PENDING)
        beside = measure(place, chosen, options.times)
        left = app.jobs.count(status=JobState.PENDING)
        rate = (before - left) / (time.perf_counter() - began)
    if not left:
        print("the backlog ended before the pages did; give a larger --backlog")
    show(f"while {rate:,.0f} jobs/s are drained ({left:,} jobs were left)", beside)
    return {"beside": beside, "rate": rate, "left": left}


def _begun(app: App) -> None:
    """Wait until the worker has started a job."""
    ends, first = time.perf_counter() + PATIENCE, app.jobs.count(status=JobState.PENDING)
    while first and app.jobs.count(status=JobState.PENDING) == first:
        if time.perf_counter() > ends:
            raise RuntimeError("the worker did not start")
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--postgres", help="URL of a database to write to (default: a private server)")
    parser.add_argument("--sqlite", type=Path, help="file to write to (default: a temporary one)")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--backlog", type=int, default=300_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--phase", choices=("all", "fill", "idle", "drain"), default="all")
    parser.add_argument("--pages", default="", help="measure only pages whose name contains this text")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    with contextlib.ExitStack() as stack:
        has_to_fill = options.phase in ("all", "fill")
        if options.store == "sqlite":
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            file = (options.sqlite or folder / "jobs.db").absolute()
            url = f"sqlite:///{file}"
            if has_to_fill:
                prepare_sqlite(file, options.jobs)
        else:
            url = options.postgres or stack.enter_context(running_postgres()).url()
            if has_to_fill:
                prepare(url, options.jobs)
        results = run(url, options)
    if options.json:
        options.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()
