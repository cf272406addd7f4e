"""Signals to jobs and events through the app."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from tidemill import App
from tidemill.client.access import acting
from tidemill.domain.signals import MOST_UNREAD, NewSignal
from tidemill.errors import (
    BadArguments,
    BadFilter,
    BadSettings,
    IllegalTransition,
    JobNotFound,
    PayloadTooLarge,
    TooManySignals,
    UsageError,
)
from tidemill.ids import new_id


def enqueued(app: App, tenant: str = "default") -> object:
    """Enqueue a job that no worker takes."""
    with app.tenant(tenant):
        return app.enqueue("nothing.runs.this")


def test_a_signal_is_kept_until_the_job_takes_it(app: App) -> None:
    job = enqueued(app)
    assert app.signal(job, "approved", {"by": "ada"}) is True
    (signal,) = app.signals.list(job)
    assert (signal.name, signal.payload) == ("approved", '{"by":"ada"}')
    assert signal.source is not None


def test_a_signal_with_a_key_is_accepted_once(app: App) -> None:
    job = enqueued(app)
    assert app.signal(job, "approved", 1, "k") is True
    assert app.signal(job, "approved", 2, key="k") is False
    assert [signal.payload for signal in app.signals.list(job)] == ["1"]


def test_a_job_is_named_by_its_handle_or_its_id(app: App) -> None:
    job = app.enqueue("nothing.runs.this")
    assert app.signal(job.id, "a") is True
    assert app.signal(str(job.id), "b") is True
    assert len(app.signals.list(job.id)) == 2


def test_a_signal_to_an_ended_job_is_refused(app: App) -> None:
    job = app.enqueue("nothing.runs.this")
    job.cancel()
    with pytest.raises(IllegalTransition, match="has ended"):
        app.signal(job, "approved")


def test_a_signal_to_a_job_of_another_tenant_finds_none(app: App) -> None:
    job = enqueued(app, "theirs")
    with pytest.raises(JobNotFound):
        app.signal(job, "approved")
    with pytest.raises(JobNotFound):
        app.signal(new_id(), "approved")
    with app.tenant("theirs"):
        assert app.signal(job, "approved")


def test_a_job_with_too_many_unread_signals_refuses_more(app: App) -> None:
    job = app.enqueue("nothing.runs.this")
    app.store.post_signals([NewSignal(job.id, "default", "n") for _ in range(MOST_UNREAD)])
    with pytest.raises(TooManySignals, match="1,000"):
        app.signal(job, "approved")


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb"])
def test_an_unfit_name_is_refused(app: App, name: str) -> None:
    job = enqueued(app)
    with pytest.raises(BadSettings, match="is not a name"):
        app.signal(job, name)
    with pytest.raises(BadSettings, match="is not a name"):
        app.emit(name)


def test_a_payload_must_be_json_of_a_bounded_size(app: App) -> None:
    job = enqueued(app)
    with pytest.raises(BadArguments, match="cannot be written as JSON"):
        app.signal(job, "approved", object())
    with pytest.raises(PayloadTooLarge):
        app.signal(job, "approved", "x" * 300_000)


def test_an_answer_to_a_question_is_not_sent_as_a_signal(app: App) -> None:
    with pytest.raises(BadSettings, match="answers"):
        app.signal(enqueued(app), "ask/decision")


def test_signals_of_people_are_audited(app: App) -> None:
    job = app.enqueue("nothing.runs.this")
    app.signal(job, "quiet")
    with acting("key:ada"):
        app.signal(job, "approved", key="k")
        app.emit("order.paid", match="42")
    signalled, emitted = [
        next(iter(app.audit.list(action=action))).entry for action in ("job.signalled", "event.emitted")
    ]
    assert (signalled.who, signalled.subject) == ("key:ada", f"job:{job.id}")
    assert signalled.after == {"name": "approved", "key": "k"}
    assert emitted.subject == "event:order.paid"
    assert len(app.audit.list(action="job.signalled")) == 1


def test_an_event_is_stored_once_per_id_name_and_tenant(app: App) -> None:
    first = app.emit("order.paid", {"id": 42}, match=42, id="evt_1")
    assert first is not None
    assert first.match == "42"
    assert app.emit("order.paid", {"id": 43}, id="evt_1") is None
    assert app.emit("order.sent", id="evt_1") is not None
    with app.tenant("theirs"):
        assert app.emit("order.paid", id="evt_1") is not None
    page, following = app.signals.events(name="order.paid")
    assert [event.payload for event in page] == ['{"id":42}']
    assert following is None


def test_events_are_listed_in_pages_from_the_newest(app: App) -> None:
    for n in range(5):
        app.emit("counted", n)
    first, cursor = app.signals.events(limit=3)
    rest, end = app.signals.events(limit=3, cursor=cursor)
    assert [event.payload for event in (*first, *rest)] == ["4", "3", "2", "1", "0"]
    assert end is None
    with pytest.raises(BadFilter):
        app.signals.events(cursor="nonsense")


async def _twins(app: App) -> None:
    job = await app.aenqueue("nothing.runs.this")
    assert await app.asignal(job, "approved", 1)
    assert len(await app.signals.alist(job)) == 1
    assert await app.aemit("order.paid") is not None
    assert len((await app.signals.aevents())[0]) == 1
    assert await app.signals.aemit("order.paid") is not None


def test_the_async_versions_do_the_same(app: App) -> None:
    asyncio.run(_twins(app))


@contextmanager
def user_connection(app: App) -> Iterator[Any]:
    """A connection of a user to the store's own database; the memory store has none."""
    if app.store.url.startswith("postgresql"):
        with psycopg.connect(app.store_url() or "") as connection:
            yield connection
    else:
        with closing(sqlite3.connect(app.store.url.removeprefix("sqlite:///"))) as connection:
            yield connection


def test_s14_a_signal_on_the_users_connection_commits_with_it(app: App) -> None:
    job = app.enqueue("nothing.runs.this")
    if app.store.url.startswith("memory"):
        with pytest.raises(UsageError, match="needs PostgreSQL or SQLite"):
            app.signal(job, "approved", connection=object())
        return
    with user_connection(app) as connection:
        assert app.signal(job, "approved", {"n": 1}, connection=connection)
        connection.rollback()
        assert app.signals.list(job) == []
        assert app.signal(job, "approved", {"n": 2}, key="k", connection=connection)
        assert app.signal(job, "approved", {"n": 3}, key="k", connection=connection) is False
        with pytest.raises(JobNotFound):
            app.signal(new_id(), "approved", connection=connection)
        connection.commit()
    assert [signal.payload for signal in app.signals.list(job)] == ['{"n":2}']


def test_a_signal_on_an_async_connection_commits_with_it(app: App) -> None:
    if not app.store.url.startswith("postgresql"):
        job = enqueued(app)
        with pytest.raises(UsageError):
            asyncio.run(app.asignal(job, "approved", connection=object()))
        return

    async def send() -> int:
        job = await app.aenqueue("nothing.runs.this")
        async with await psycopg.AsyncConnection.connect(app.store_url() or "") as connection:
            await app.asignal(job, "approved", {"n": 1}, connection=connection)
        return len(await app.signals.alist(job))

    assert asyncio.run(send()) == 1
