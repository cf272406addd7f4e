"""Durable and live subscriptions: order, repetition, and delivery to other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest
from tests.grounds import url_of

from tidemill import App, Event, ManualClock
from tidemill.errors import BadSettings, SubscriptionNotFound


def make(url: str, **settings: object) -> App:
    app = App(url, migrate=True, alerts=False, **settings)  # type: ignore[arg-type]

    @app.task(retry=2)
    def work(fails: bool = False) -> None:
        if fails:
            raise ValueError

    return app


def test_a_durable_handler_gets_the_events_of_each_job_in_order() -> None:
    clock = ManualClock()
    app = make("memory://", clock=clock)
    events: list[Event] = []
    app.on("job.*", events.append, durable="audit")
    good = app.bound_task("work").enqueue()
    bad = app.bound_task("work").enqueue(fails=True)
    app.testing().drain()
    clock.advance("1h")
    app.testing().drain()
    bad.refresh().retry()
    bad.cancel("no longer wanted")
    app.subscriptions.deliver()
    of: dict[UUID | None, list[tuple[str, str | None]]] = {}
    for event in events:
        of.setdefault(event.job_id, []).append((event.name, event.state))
    assert of[good.id] == [("job.enqueued", "pending"), ("job.finished", "completed")]
    assert of[bad.id] == [
        ("job.enqueued", "pending"),
        ("job.put_off", "scheduled"),
        ("job.finished", "dead_lettered"),
        ("job.retried", "pending"),
        ("job.cancelled", "cancelled"),
    ]
    assert events[-1].data == {"reason": "no longer wanted", "by": events[-1].data["by"]}
    app.subscriptions.deliver()
    assert len(events) == 7, "handled events do not come again"
    app.close()


def test_a_failing_handler_is_called_again_and_holds_back_its_job_only() -> None:
    clock = ManualClock()
    app = make("memory://", clock=clock)
    seen: list[Event] = []
    broken = True

    def handle(event: Event) -> None:
        if broken and event.job_id == first.id:
            raise ConnectionError("the billing service is down")
        seen.append(event)

    app.on("job.finished", handle, durable="billing")
    first, second = app.bound_task("work").enqueue(), app.bound_task("work").enqueue()
    app.testing().drain()
    app.subscriptions.deliver()
    assert [event.job_id for event in seen] == [second.id]
    (status,) = app.subscriptions.list()
    assert (status.waiting, status.failing) == (1, 1)
    assert status.last_error == "ConnectionError: the billing service is down"
    broken = False
    app.subscriptions.deliver()
    assert len(seen) == 1, "it is not due yet"
    clock.advance("2s")
    app.subscriptions.deliver()
    assert [event.job_id for event in seen] == [second.id, first.id]
    app.close()


def test_an_event_of_a_user_reaches_durable_handlers() -> None:
    app = make("memory://")
    seen: list[Event] = []
    app.on("order.*", seen.append, durable="shop")
    app.events.publish(Event("order.paid", app.clock.now(), data={"order": 7}))
    app.subscriptions.deliver()
    assert [(event.name, event.data) for event in seen] == [("order.paid", {"order": 7})]
    app.close()


def test_a_removed_subscription_loses_its_events() -> None:
    app = make("memory://")
    subscription = app.on("job.finished", print, durable="old")
    app.subscriptions.deliver()
    subscription.close()
    app.bound_task("work").enqueue()
    app.testing().drain()
    assert [(row.name, row.waiting) for row in app.subscriptions.list()] == [("old", 1)]
    assert app.subscriptions.remove("old") == 1
    assert app.subscriptions.list() == []
    with pytest.raises(SubscriptionNotFound):
        app.subscriptions.remove("old")
    app.close()


def test_invalid_durable_subscriptions_are_refused() -> None:
    app = make("memory://")
    app.on("job.finished", print, durable="a")
    with pytest.raises(BadSettings, match="has a handler already"):
        app.on("job.finished", repr, durable="a")
    with pytest.raises(BadSettings, match="does not begin with"):
        app.on("job.finished", print, durable="notifications/x")
    with pytest.raises(BadSettings, match="omit everywhere"):
        app.on("job.finished", print, durable="b", everywhere=True)
    app.close()


def test_a_job_pays_nothing_without_a_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    app = make("memory://")
    monkeypatch.setattr(
        type(app.store), "append_events", lambda *_, **__: pytest.fail("an event was written")
    )
    app.bound_task("work").enqueue()
    with app.worker():
        app.bound_task("work").enqueue().result(timeout=60)
    app.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_live_handler_gets_the_events_of_another_process(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = url_of(kind, tmp_path, request)
    app = make(url)
    seen: list[Event] = []
    there = threading.Event()

    def handle(event: Event) -> None:
        seen.append(event)
        if len(seen) >= 3:
            there.set()

    with app.on("job.finished", handle, everywhere=True):
        ids = [app.bound_task("work").enqueue().id for _ in range(3)]
        child = subprocess.run(
            [sys.executable, "-c", _WORK, url], timeout=120, check=False, capture_output=True, text=True
        )
        assert child.returncode == 0, child.stderr
        assert there.wait(60)
    assert {event.job_id for event in seen} == set(ids)
    assert not [row for row in app.subscriptions.list() if row.name.startswith("live/")]
    app.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_no_event_is_lost_when_a_subscriber_is_killed(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Two processes share a subscription. The first one is killed in the middle, and the second one continues."""
    url = url_of(kind, tmp_path, request)
    app = make(url)
    log = tmp_path / "handled"
    first = subprocess.Popen([sys.executable, "-c", _HANDLE, url, str(log), "20"])
    try:
        _until_lines(log, 1, first)  # "ready": the subscription is stored
        app.store.settings()
        ids = [str(app.bound_task("work").enqueue().id) for _ in range(60)]
        app.testing().drain()
        _until_lines(log, 21, first)
        os.kill(first.pid, signal.SIGKILL)
    finally:
        first.kill()
        first.wait()
    second = subprocess.Popen([sys.executable, "-c", _HANDLE, url, str(log), "-1"])
    try:
        handled = Counter[str]()
        while not set(ids) <= set(handled):
            _until_lines(log, sum(handled.values()) + 1, second)
            handled = Counter(line for line in log.read_text().split() if line != "ready")
    finally:
        second.kill()
        second.wait()
    assert set(handled) == set(ids), "every event at least once, and no other"
    assert handled.total() < 2 * len(ids), "settled events do not come again"
    app.close()


def _until_lines(path: Path, lines: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process has written this many lines."""
    waiting = threading.Event()
    for _ in range(3000):
        if path.exists() and len(path.read_text().splitlines()) >= lines:
            return
        assert process.poll() is None or lines <= 0, "the subscriber ended"
        waiting.wait(0.02)
    pytest.fail(f"{path.name} has too few lines")


_WORK = """
import sys
from tests.delivery.test_subscriptions import make
app = make(sys.argv[1])
app.store.settings()
with app.worker() as worker:
    while app.jobs.count(status=["pending", "running", "claimed"]):
        pass
app.close()
"""

_HANDLE = """
import sys, threading
from tests.delivery.test_subscriptions import make
app = make(sys.argv[1])
log, stop_after = open(sys.argv[2], "a", buffering=1), int(sys.argv[3])
count = 0
def handle(event):
    global count
    print(event.job_id, file=log)
    count += 1
    if count == stop_after:
        threading.Event().wait(120)  # the test kills this process here
app.on("job.finished", handle, durable="billing")
background = app.background_thread()
for duty in background._duties:
    duty.step()
print("ready", file=log)
background.start()
threading.Event().wait(120)
"""
