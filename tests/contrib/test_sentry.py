"""Sentry events, spans and check-ins, parsed from the envelopes that a local server receives."""

from __future__ import annotations

import asyncio
import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk

from tidemill import App, Context, Cron, Fixed, ManualClock, PermanentError, Retry, Snooze
from tidemill.contrib.sentry import TidemillIntegration

ENDED = ("completed", "failed", "timed_out", "dead_lettered", "scheduled")


class Envelopes:
    """The items of all envelopes that the server has received, by type."""

    def __init__(self) -> None:
        self.dsn = ""
        self.items: list[tuple[str, dict[str, Any]]] = []

    def add(self, body: bytes) -> None:
        lines = body.split(b"\n")
        position = 1
        while position < len(lines) and lines[position]:
            header = json.loads(lines[position])
            self.items.append((header["type"], json.loads(lines[position + 1])))
            position += 2

    def of(self, kind: str) -> list[dict[str, Any]]:
        sentry_sdk.flush(timeout=5)
        return [item for type_, item in self.items if type_ == kind]


@contextmanager
def server() -> Iterator[Envelopes]:
    received = Envelopes()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.add(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None: ...

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    received.dsn = f"http://key@127.0.0.1:{listening.server_address[1]}/1"
    try:
        yield received
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


@pytest.fixture
def sentry() -> Iterator[Envelopes]:
    with server() as received:
        sentry_sdk.init(
            received.dsn,
            integrations=[TidemillIntegration(monitor_schedules=True, ignore=[KeyError])],
            traces_sample_rate=1.0,
            auto_enabling_integrations=False,
        )
        yield received
        sentry_sdk.get_client().close(timeout=2)
        sentry_sdk.init()  # without a DSN nothing is sent


@pytest.fixture
def app(sentry: Envelopes) -> Iterator[App]:
    with App("memory://") as made:
        yield made


def run(app: App, *jobs: Any) -> None:
    """Run jobs in a worker until they have ended or wait for another attempt."""
    with app.worker():
        for job in jobs:
            while job.refresh().status not in ENDED:
                threading.Event().wait(0.01)


@pytest.mark.parametrize("in_coroutine", [True, False])
def test_only_the_last_failure_of_a_job_is_reported_with_its_context(
    app: App, sentry: Envelopes, in_coroutine: bool
) -> None:
    def fail() -> None:
        sentry_sdk.set_tag("order", "7")
        raise ConnectionError("the bank is away")

    async def afail() -> None:
        fail()

    task = app.task(name="charge", queue="pay", retry=Fixed(max_attempts=3, wait=0))(
        afail if in_coroutine else fail
    )
    job = task.enqueue()
    run(app, job)
    (event,) = sentry.of("event")
    (error,) = event["exception"]["values"]
    assert (error["type"], error["value"]) == ("ConnectionError", "the bank is away")
    assert error["mechanism"] == {"type": "tidemill", "handled": False}
    assert event["contexts"]["job"] == {
        "id": str(job.id), "task": "charge", "attempt": 3, "max_attempts": 3, "queue": "pay", "tenant": "default",
        "correlation_id": job.correlation_id,
    }  # fmt: skip
    assert event["tags"]["order"] == "7"
    assert event["transaction"] == "charge"


def test_signals_and_ignored_errors_are_not_reported(app: App, sentry: Envelopes) -> None:
    @app.task
    def again() -> None:
        raise Retry(after="1h")

    @app.task
    def later() -> None:
        raise Snooze(for_="1h")

    @app.task(retry=None)
    def ignored() -> None:
        raise KeyError("price")

    run(app, again.enqueue(), later.enqueue(), ignored.enqueue())
    assert sentry.of("event") == []


def test_a_permanent_error_is_reported_once(app: App, sentry: Envelopes) -> None:
    @app.task
    def fail() -> None:
        raise PermanentError("the card has expired")

    run(app, fail.enqueue())
    (event,) = sentry.of("event")
    assert event["exception"]["values"][0]["value"] == "the card has expired"


@pytest.mark.parametrize("in_coroutine", [True, False])
def test_a_job_that_runs_out_of_time_is_one_event(app: App, sentry: Envelopes, in_coroutine: bool) -> None:
    def late(ctx: Context) -> None:
        while True:
            ctx.check()
            threading.Event().wait(0.01)

    async def alate() -> None:
        await asyncio.sleep(60)

    options: Any = {"name": "late", "retry": Fixed(max_attempts=2, wait=0), "timeout": "200ms"}
    job = app.task(**options)(alate if in_coroutine else late).enqueue()
    run(app, job)
    assert job.refresh().status == "timed_out"
    (event,) = sentry.of("event")
    assert "attempt 2 of 2 timed_out" in event["logentry"]["formatted"]


def test_a_job_that_a_person_retries_is_one_event_for_each_final_failure(app: App, sentry: Envelopes) -> None:
    works = False

    @app.task(retry=Fixed(max_attempts=2, wait=0))
    def charge() -> None:
        if not works:
            raise ConnectionError("the bank is away")

    job = charge.enqueue()
    run(app, job)
    assert len(sentry.of("event")) == 1
    job.retry()
    run(app, job)
    first, second = sentry.of("event")
    assert first["event_id"] != second["event_id"]
    assert [event["contexts"]["job"]["attempt"] for event in (first, second)] == [2, 2]
    works = True
    job.retry()
    run(app, job)
    assert job.refresh().status == "completed"
    assert len(sentry.of("event")) == 2


def test_a_result_that_cannot_be_stored_is_reported(app: App, sentry: Envelopes) -> None:
    @app.task
    def wrong() -> int:
        return "seven"  # type: ignore[return-value]

    job = wrong.enqueue()
    run(app, job)
    (event,) = sentry.of("event")
    assert event["contexts"]["job"]["id"] == str(job.id)


def test_a_trace_goes_through_the_queue(app: App, sentry: Envelopes) -> None:
    @app.task(queue="pay")
    def charge() -> None: ...

    with sentry_sdk.start_transaction(op="test", name="request"):
        job = charge.enqueue()
    run(app, job)
    asked, processed = sentry.of("transaction")
    (publish,) = asked["spans"]
    assert (publish["op"], publish["data"]["messaging.message.id"]) == ("queue.publish", str(job.id))
    trace = processed["contexts"]["trace"]
    assert (trace["op"], trace["trace_id"]) == ("queue.process", asked["contexts"]["trace"]["trace_id"])
    assert trace["parent_span_id"] == publish["span_id"]
    data = trace["data"]
    assert (data["messaging.destination.name"], data["messaging.message.retry.count"]) == ("pay", 0)
    assert data["messaging.message.receive.latency"] >= 0


def test_every_fire_is_a_check_in_of_its_schedule(sentry: Envelopes) -> None:
    clock = ManualClock()
    with App("memory://", clock=clock) as app:

        @app.task
        def clean(works: bool) -> None:
            if not works:
                raise PermanentError("no")

        for key, works in (("good", True), ("bad", False)):
            app.schedules.add(
                clean, Cron("0 * * * *"), key=key, args={"works": works}, timezone="Europe/Berlin"
            )
        clock.advance(3600)
        app.testing().drain()
    checks = sentry.of("check_in")
    assert sorted((check["monitor_slug"], check["status"]) for check in checks) == [
        ("bad", "error"), ("bad", "in_progress"), ("good", "in_progress"), ("good", "ok"),
    ]  # fmt: skip
    assert len({check["check_in_id"] for check in checks}) == 2
    first = next(check for check in checks if check["status"] == "in_progress")
    assert first["monitor_config"]["schedule"] == {"type": "crontab", "value": "0 * * * *"}
    assert first["monitor_config"]["timezone"] == "Europe/Berlin"


def check_ins_of(sentry: Envelopes) -> dict[str, list[str]]:
    """The statuses of every check-in, by its id."""
    found: dict[str, list[str]] = {}
    for check in sentry.of("check_in"):
        found.setdefault(check["check_in_id"], []).append(check["status"])
    return found


def test_a_fire_with_several_attempts_and_a_snooze_is_one_check_in(sentry: Envelopes) -> None:
    clock, ends = ManualClock(), iter([Snooze(for_="10s"), Retry(after="10s"), ConnectionError("away"), None])
    with App("memory://", clock=clock) as app:

        @app.task(retry=Fixed(max_attempts=5, wait=10))
        def clean() -> None:
            if (error := next(ends)) is not None:
                raise error

        app.schedules.add(clean, Cron("0 * * * *"), key="nightly")
        clock.advance(3600)
        testing = app.testing()
        for _ in range(4):
            testing.drain()
            testing.advance(10)
        (job,) = app.jobs.list().items
        assert (job.status, job.attempt) == ("completed", 3)
        assert check_ins_of(sentry) == {job.id.hex: ["in_progress", "ok"]}


def test_a_fire_that_a_person_retries_stays_one_check_in(sentry: Envelopes) -> None:
    clock = ManualClock()
    with App("memory://", clock=clock) as app:

        @app.task(retry=None)
        def clean() -> None:
            raise ConnectionError("away")

        app.schedules.add(clean, Cron("0 * * * *"), key="nightly")
        clock.advance(3600)
        app.testing().drain()
        (job,) = app.jobs.list().items
        job.retry()
        app.testing().drain()
        found = check_ins_of(sentry)
    assert found.keys() == {job.id.hex}
    assert found[job.id.hex].count("in_progress") == 1
    assert set(found[job.id.hex][1:]) == {"error"}


@pytest.mark.parametrize("in_coroutine", [True, False])
def test_a_fire_that_runs_out_of_time_ends_its_check_in_with_an_error(
    sentry: Envelopes, in_coroutine: bool
) -> None:
    with App("memory://") as app:

        def late(ctx: Context) -> None:
            while True:
                ctx.check()
                threading.Event().wait(0.01)

        async def alate() -> None:
            await asyncio.sleep(60)

        task = app.task(name="late", retry=None, timeout="200ms")(alate if in_coroutine else late)
        app.schedules.add(task, Cron("* * * * * *"), key="often")
        with app.worker():
            while not (jobs := app.jobs.list(status="timed_out").items):
                threading.Event().wait(0.02)
        found = check_ins_of(sentry)
    assert found[jobs[0].id.hex] == ["in_progress", "error"]


PROGRAM = """
import os, sys
import sentry_sdk
from tidemill import App
from tidemill.contrib.sentry import TidemillIntegration

sentry_sdk.init(os.environ["DSN"], integrations=[TidemillIntegration()], auto_enabling_integrations=False)
app = App({url!r}, migrate=True)


@app.task(isolation="process", retry=None)
def fail() -> None:
    raise ValueError("in a child")


@app.task(isolation="process", retry=None)
def crash() -> None:
    os._exit(3)


if __name__ == "__main__":
    import reported

    with reported.app.worker():
        for job in (reported.fail.enqueue(), reported.crash.enqueue()):
            try:
                job.result()
            except Exception as error:
                print(error)
"""


@pytest.mark.long
def test_failures_and_crashes_of_child_processes_are_reported_once(tmp_path: Path) -> None:
    (tmp_path / "reported.py").write_text(PROGRAM.format(url=f"sqlite:///{tmp_path}/jobs.db"))
    with server() as received:
        done = subprocess.run(
            [sys.executable, "reported.py"],
            cwd=tmp_path,
            env={"DSN": received.dsn, "PYTHONPATH": str(tmp_path), "PATH": ""},
            timeout=120,
            check=True,
            capture_output=True,
            text=True,
        )
        events = [item for kind, item in received.items if kind == "event"]
    described = sorted(
        event["exception"]["values"][0]["value"] if "exception" in event else event["logger"]
        for event in events
    )
    assert described == ["in a child", "tidemill.jobs"], (done.stdout, done.stderr)
