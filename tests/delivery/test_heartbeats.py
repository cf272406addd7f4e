"""Pings of external monitors about the jobs of schedules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.delivery.receivers import HookReceiver

from tidemill import App, Every, ManualClock
from tidemill.errors import BadSchedule


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock) -> Iterator[App]:
    with App("memory://", clock=clock, alerts=False, outgoing_networks=["127.0.0.0/8"]) as app:

        @app.task(retry=None)
        def backup(fails: bool = False) -> None:
            if fails:
                raise ValueError

        yield app


def test_a_monitor_is_pinged_when_a_job_completes_and_when_it_fails(app: App, clock: ManualClock) -> None:
    with HookReceiver() as monitor:
        app.schedules.add("backup", Every("1h"), "good", heartbeat=f"{monitor.url}/a?x=1")
        app.schedules.add("backup", Every("1h"), "bad", args={"fails": True}, heartbeat=f"{monitor.url}/b")
        app.schedules.add("backup", Every("1h"), "silent")
        clock.advance("61m")
        app.testing().drain()
        app.subscriptions.deliver()
    assert sorted(path for path, _, _ in monitor.requests) == ["/a?x=1", "/b/fail"]


def test_a_worker_also_pings_the_start(app: App) -> None:
    with HookReceiver() as monitor:
        app.schedules.add("backup", Every("1h"), "good", heartbeat=f"{monitor.url}/a")
        with app.worker():
            app.schedules.trigger("good")
            monitor.wait(2)
    assert [path for path, _, _ in monitor.requests] == ["/a/start", "/a"]


def test_a_ping_that_fails_is_repeated(app: App, clock: ManualClock) -> None:
    with HookReceiver((503, {}), (200, {})) as monitor:
        app.schedules.add("backup", Every("1h"), "good", heartbeat=monitor.url)
        clock.advance("61m")
        app.testing().drain()
        app.subscriptions.deliver()
        clock.advance("5s")
        app.subscriptions.deliver()
        app.subscriptions.deliver()
    assert len(monitor.requests) == 2


def test_a_private_address_is_not_pinged() -> None:
    clock = ManualClock()
    with HookReceiver() as monitor, App("memory://", clock=clock, alerts=False) as app:
        app.task(name="backup")(_nothing)
        app.schedules.add("backup", Every("1h"), "good", heartbeat=monitor.url)
        clock.advance("61m")
        app.testing().drain()
        app.subscriptions.deliver()
        (row,) = [row for row in app.subscriptions.list() if row.name == "heartbeats"]
        assert row.last_error is not None
        assert "not a public address" in row.last_error
        assert not monitor.requests


def _nothing() -> None: ...


def test_an_address_that_cannot_be_read_is_refused(app: App) -> None:
    for url in ("ftp://example.com", "https://user:secret@example.com", "nothing"):
        with pytest.raises(BadSchedule, match="heartbeat"):
            app.schedules.add("backup", Every("1h"), "x", heartbeat=url)


def test_a_heartbeat_can_be_removed(app: App) -> None:
    app.schedules.add("backup", Every("1h"), "x", heartbeat="https://example.com/a")
    assert app.schedules.get("x").options["heartbeat"] == "https://example.com/a"
    app.schedules.update("x", heartbeat=None)
    assert not app.schedules.get("x").options.get("heartbeat")
