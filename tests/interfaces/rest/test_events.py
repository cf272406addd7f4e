"""Event streams over a real connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.interfaces.rest.served import PATIENCE, Place, place

from tidemill.client.core import client_of
from tidemill.clock import SystemClock
from tidemill.domain.access import Role
from tidemill.web import streams
from tidemill.web.streams import RECHECK


def until(true: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE
    while not true():
        assert clock.monotonic() < deadline
        threading.Event().wait(0.02)


def create(where: Place, task: str = "send", **args: Any) -> str:
    status, job = where.request("POST", "/api/jobs", {"task": task, "args": args or {"to": "ada"}})
    assert status == 201, job
    found: str = job["id"]
    return found


def test_a_stream_follows_a_job_to_its_end() -> None:
    with place() as where:
        id = create(where)
        stream = where.follow(f"/api/jobs/{id}/events")
        assert stream.answer.status == 200
        assert stream.answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.answer.headers["x-correlation-id"]
        events = stream.events()
        first = next(events)
        assert (first.name, first.data["status"]) == ("job", "pending")
        where.app.testing().drain()
        rest = list(events)  # the stream ends by itself
        assert rest[-1].name == "end"
        assert (rest[-1].data["status"], rest[-1].data["value"]) == ("completed", "sent to ada")
        assert len({each.id for each in (first, *rest)}) == 1 + len(rest)

        again = where.follow(f"/api/jobs/{id}/events", **{"last-event-id": first.id})
        assert [each.name for each in again.events()] == ["end"]
        nothing = where.follow(f"/api/jobs/{id}/events", **{"last-event-id": rest[-1].id})
        assert nothing.answer.status == 204


def test_a_client_that_reconnects_gets_no_event_twice() -> None:
    with place() as where:
        id = create(where)
        first = next(where.follow(f"/api/jobs/{id}/events").events())
        again = where.follow(f"/api/jobs/{id}/events", **{"last-event-id": first.id}).events()
        where.request("POST", f"/api/jobs/{id}/cancel", {"reason": "no"})
        assert [(each.name, each.data["status"]) for each in again] == [("end", "cancelled")]


def test_a_stream_reports_that_its_job_was_deleted() -> None:
    with place() as where:
        id = create(where)
        where.app.jobs.get(id).cancel()
        where.app.jobs.get(id).retry()
        events = where.follow(f"/api/jobs/{id}/events").events()
        assert next(events).data["status"] == "pending"
        store = where.app.store
        job = store.get([where.app.jobs.get(id).id], tenant="default")[0]
        with store.transaction():  # one transaction, so that the stream cannot see the state in between
            where.app.jobs.get(id).cancel()
            store.delete([job.id], tenant="default")
        assert list(events)[-1].name == "gone"


def test_the_change_stream_sends_kinds_without_contents() -> None:
    with place() as where:
        stream = where.follow("/api/events")
        events = stream.events()
        until(lambda: where.server._service.streams == 1)
        create(where)
        first = next(events)
        assert first.name == "change"
        assert "jobs" in first.data["kinds"]
        where.request("POST", "/api/tasks/send/pause")
        seen: set[str] = set()
        while "tasks" not in seen:
            seen |= set(next(events).data["kinds"])
        again = where.follow("/api/events", **{"last-event-id": first.id})
        assert set(next(again.events()).data["kinds"]) >= {"jobs", "schedules", "workers"}


def test_a_stream_sends_heartbeats() -> None:
    with place(heartbeat=0.05) as where:
        lines = where.follow("/api/events").lines()
        while not next(lines).startswith(":"):
            pass


def test_a_stop_ends_every_stream_cleanly() -> None:
    with place() as where:
        id = create(where)
        open_ones = [
            where.follow(path) for path in ("/api/events", f"/api/jobs/{id}/events") for _ in range(3)
        ]
        until(lambda: where.server._service.streams == 6)
        where.server.stop()
        for stream in open_ones:
            assert stream.answer.status == 200
            list(stream.lines())  # reads to the end; a cut connection would raise
        until(lambda: where.server._service.streams == 0)


def test_a_disconnected_client_is_removed() -> None:
    with place() as where:
        id = create(where)
        stream = where.follow(f"/api/jobs/{id}/events")
        next(stream.events())
        until(lambda: where.server._service.streams == 1)
        stream.close()
        until(lambda: where.server._service.streams == 0)
        until(lambda: not client_of(where.app).waiting(None)._watchers)


def test_many_streams_query_the_store_no_more_often_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with place() as where:
        ids = [create(where, to=str(number)) for number in range(40)]
        get = where.app.store.get
        asked: list[int] = []

        def counted(wanted: Any, **rest: Any) -> Any:
            asked.append(len(wanted))
            return get(wanted, **rest)

        opened = [where.follow(f"/api/jobs/{id}/events").events() for id in ids]
        for events in opened:
            assert next(events).name == "job"
        listeners: list[object] = []
        listen = where.app.store.listen

        def listened() -> Any:
            listeners.append(1)
            return listen()

        monkeypatch.setattr(where.app.store, "listen", listened)
        monkeypatch.setattr(where.app.store, "get", counted)
        until(lambda: len(asked) >= 3)  # three polls, each for all streams
        assert max(asked) == 40
        assert sum(1 for size in asked if size < 40) == 0
        assert listeners == []
        monkeypatch.undo()
        where.app.testing().drain()
        for events in opened:
            assert list(events)[-1].name == "end"


def test_a_stream_beyond_the_limit_gets_503() -> None:
    with place(max_streams=1) as where:
        where.follow("/api/events")
        until(lambda: where.server._service.streams == 1)
        status, document = where.request("GET", "/api/events")
        assert (status, document["code"]) == (503, "overloaded")


def test_one_key_cannot_use_up_the_streams_of_others() -> None:
    with place(max_streams_per_key=2) as where:
        one = where.app.keys.create("one", role=Role.VIEWER).secret
        other = where.app.keys.create("other", role=Role.VIEWER).secret
        first = where.follow("/api/events", one)
        where.follow("/api/events", one)
        until(lambda: where.server._service.streams == 2)
        status, document = where.request("GET", "/api/events", key=one)
        assert (status, document["code"]) == (429, "too_many_streams")
        where.follow("/api/events", other)
        until(lambda: where.server._service.streams == 3)
        first.close()
        until(lambda: where.server._service.streams == 2)
        where.follow("/api/events", one)
        until(lambda: where.server._service.streams == 3)
    assert not where.server._service.streams_of


def test_revoking_a_key_ends_its_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    assert RECHECK <= 5
    monkeypatch.setattr(streams, "RECHECK", 0.0)
    with place(heartbeat=0.05) as where:
        key = where.app.keys.create("short", role=Role.VIEWER)
        stream = where.follow("/api/events", key.secret)
        until(lambda: where.server._service.streams == 1)
        where.app.keys.revoke(key.key.id)
        list(stream.lines())  # ends although no change occurs


def test_the_event_stream_sends_what_happens_to_jobs() -> None:
    with place() as where:
        events = where.follow("/api/events/jobs?on=job.finished").events()
        until(lambda: any(one.name.startswith("live/") for one in where.app.store.subscriptions))
        id = create(where)
        where.app.testing().drain()
        first = next(events)
        assert first.name == "events"
        (happened,) = first.data["items"]
        assert (happened["name"], happened["job_id"], happened["status"]) == ("job.finished", id, "completed")


@pytest.mark.parametrize(("grant", "shown"), [("*", "wrong pin 4711"), ("*,-jobs.arguments", "***")])
def test_a_grant_without_arguments_hides_the_data_of_events(grant: str, shown: str) -> None:
    with place() as where:
        key = where.app.keys.create("limited", role=Role.OPERATOR, grants=[grant])
        events = where.follow("/api/events/jobs?on=job.cancelled", key.secret).events()
        until(lambda: any(one.name.startswith("live/") for one in where.app.store.subscriptions))
        where.app.jobs.cancel(ids=[where.app.enqueue("send", to="ada").id], reason="wrong pin 4711")
        (happened,) = next(events).data["items"]
        assert happened["data"]["reason"] == shown
