"""Tests of LISTEN and NOTIFY wake-ups."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tidemill.domain.calls import without_calls
from tidemill.domain.job import Enqueued, NewJob
from tidemill.errors import JobExists, StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Listener, Store
from tidemill.stores.open import open_store
from tidemill.stores.sql.postgres.prepared_connection import Connection
from tidemill.stores.sql.postgres.wakeups import PostgresListener, payloads

SOURCE = Path(__file__).resolve().parents[2] / "src"
PATIENCE = 30.0
GAP = 0.005

SENDER = """
import sys
from tidemill.stores.open import open_store
store = open_store(sys.argv[1])
store.notify(["from afar"])
store.close()
"""

FORKED = """
import os, sys
from tidemill.stores.open import open_store
store = open_store(sys.argv[1])
listener = store.listen()
child = os.fork()
if child == 0:
    store.close()  # closes the child's copies, not the parent's listener
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
store.notify(["still here"])
print(sorted(listener.wait(30)), flush=True)
store.close()
"""


@pytest.fixture(scope="module")
def url(postgres_url: str) -> str:
    store = open_store(postgres_url)
    store.migrate()
    store.close()
    return postgres_url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    store.check()
    yield store
    store.close()


@pytest.fixture
def other(url: str) -> Iterator[Store]:
    store = open_store(url)
    yield store
    store.close()


def receive(listener: Listener, wanted: set[str]) -> set[str]:
    """Listen until every wanted topic has arrived or the patience is over; return all topics."""
    topics: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    while not wanted <= topics and time.monotonic() < deadline:
        topics |= listener.wait(1.0)
    return topics


def python(program: str, *words: str) -> str:
    """Run a program in a separate process; return its output."""
    env = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_another_store_receives_a_notification(store: Store, other: Store) -> None:
    listener = other.listen()
    store.notify(["jobs", "queue:mail"])
    assert receive(listener, {"jobs", "queue:mail"}) == {"jobs", "queue:mail"}


def test_a_notification_of_another_process_is_received(store: Store, url: str) -> None:
    listener = store.listen()
    python(SENDER, url)
    assert receive(listener, {"from afar"}) == {"from afar"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_closing_the_store_in_a_forked_child_keeps_the_parents_listener(store: Store, url: str) -> None:
    assert python(FORKED, url) == "['still here']"


def test_each_schema_has_its_own_channel(store: Store, url: str) -> None:
    second = open_store(f"{url}?schema=second", migrate=True)
    try:
        listener, stranger = store.listen(), second.listen()
        store.notify(["first"])
        second.notify(["second"])
        assert receive(listener, {"first"}) == {"first"}
        assert receive(stranger, {"second"}) == {"second"}
    finally:
        second.close()


def test_a_burst_of_notifications_is_merged_without_loss(store: Store, url: str) -> None:
    wanted = {f"topic-{n}" for n in range(1000)}
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute("listen tidemill_wake")
        begun = time.monotonic()
        for topic in sorted(wanted):
            store.notify([topic])
        topics: set[str] = set()
        transactions = 0
        while not wanted <= topics:
            notes = list(raw.notifies(timeout=PATIENCE, stop_after=1))
            assert notes, "some topics were not sent"
            for note in notes:
                topics |= set(json.loads(note.payload))
                transactions += 1
        elapsed = time.monotonic() - begun
    assert topics == wanted
    # The first at once, then one for each gap.
    assert transactions <= 2 + elapsed / GAP
    assert transactions < 500


def test_topics_that_exceed_one_message_are_split(store: Store, other: Store) -> None:
    topics = {f"queue:{n:04d}:{'x' * 50}" for n in range(400)}
    assert all(len(message) < 8000 for message in payloads(frozenset(topics)))
    assert len(payloads(frozenset(topics))) > 1
    listener = other.listen()
    store.notify(topics)
    assert receive(listener, topics) == topics


def test_a_foreign_notification_counts_as_a_change(store: Store, url: str) -> None:
    listener = store.listen()
    with psycopg.connect(url, autocommit=True) as raw:
        for payload in ("", "not json", "17", '{"a":1}'):
            raw.execute("select pg_notify('tidemill_wake', %s)", (payload,))
            assert receive(listener, {"change"}) == {"change"}


def test_a_listener_without_notify_waits_and_receives_nothing(store: Store, url: str) -> None:
    quiet = open_store(f"{url}?notify=0")
    try:
        listener, witness = quiet.listen(), store.listen()
        quiet.notify(["never sent"])
        store.notify(["not delivered"])
        assert receive(witness, {"not delivered"}) == {"not delivered"}
        begun = time.monotonic()
        assert listener.wait(0.05) == frozenset()
        assert time.monotonic() - begun >= 0.05
    finally:
        quiet.close()


def test_a_listener_reconnects_and_reports_a_change(store: Store, url: str) -> None:
    listener = store.listen()
    with psycopg.connect(url, autocommit=True) as raw:
        ended = raw.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and query ilike 'listen%'"
        ).fetchall()
    assert (True,) in ended
    assert receive(listener, {"reconnected"}) == {"change", "reconnected"}
    store.notify(["after reconnect"])
    assert receive(listener, {"after reconnect"}) == {"after reconnect"}


def test_a_connection_that_cannot_listen_is_closed(store: Store) -> None:
    made: list[Connection] = []

    def connect() -> Connection:
        made.append(store._db._connect())  # type: ignore[attr-defined]
        return made[-1]

    listener = PostgresListener(connect, 'no"channel', lambda _: None)
    assert listener.wait(0.0) == frozenset()
    listener.close()
    assert [connection.closed for connection in made] == [True, True]


def test_topics_of_a_transaction_are_sent_after_its_commit(store: Store, other: Store) -> None:
    listener = other.listen()
    with store.transaction():
        store.notify(["inside"])
        other.notify(["other"])
        assert receive(listener, {"other"}) == {"other"}
    assert receive(listener, {"inside"}) == {"inside"}


def test_topics_of_a_failed_transaction_are_never_sent(store: Store, other: Store) -> None:
    listener = other.listen()

    def fail() -> None:
        with store.transaction():
            store.notify(["inside"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with store.transaction():
        store.notify(["next"])
    assert receive(listener, {"next"}) == {"next"}


@pytest.mark.parametrize("query", ["", "?notify=0"])
def test_closing_a_listener_wakes_its_waiting_thread(url: str, query: str) -> None:
    store = open_store(url + query)
    listener, waiting = store.listen(), threading.Event()

    def wait() -> frozenset[str]:
        waiting.set()
        return listener.wait(600.0)

    with ThreadPoolExecutor(1) as pool:
        topics = pool.submit(wait)
        assert waiting.wait(PATIENCE)
        listener.close()
        assert topics.result(timeout=PATIENCE) == frozenset()
    listener.close()
    assert listener.wait(600.0) == frozenset()
    store.close()


def test_closing_the_store_wakes_listeners_and_closes_connections(url: str) -> None:
    store = open_store(f"{url}?application_name=leaving")
    listener, waiting = store.listen(), threading.Event()

    def wait() -> frozenset[str]:
        waiting.set()
        return listener.wait(600.0)

    with ThreadPoolExecutor(1) as pool:
        topics = pool.submit(wait)
        assert waiting.wait(PATIENCE)
        store.close()
        assert topics.result(timeout=PATIENCE) == frozenset()
    with psycopg.connect(url, autocommit=True) as raw:
        deadline = time.monotonic() + PATIENCE
        left = "select count(*) from pg_stat_activity where application_name = 'leaving'"
        while (row := raw.execute(left).fetchone()) is None or row[0]:
            assert time.monotonic() < deadline
    with pytest.raises(StoreUnavailable, match="closed"):
        store.listen()


def test_a_wake_up_that_cannot_be_sent_is_ignored() -> None:
    store = open_store("postgresql://postgres@127.0.0.1:1/nowhere")
    store.notify(["lost"])
    store.close()


def test_a_single_job_after_a_quiet_period_carries_its_own_wake_up(migrated_postgres_url: str) -> None:
    store = open_store(migrated_postgres_url)
    try:
        listener = store.listen()
        job = NewJob(new_id(), "work", queue="100%")
        assert store.enqueue_and_wake([job]) == [Enqueued(job.id, True)]
        assert without_calls(listener.wait(PATIENCE)) == {"ready:100%"}
        assert vars(store)["_db"]._coalescer._thread is None  # no separate statement
        with pytest.raises(JobExists):
            store.enqueue_and_wake([job])
        assert listener.wait(0.0) == frozenset()
    finally:
        store.close()


def test_a_job_of_an_open_transaction_wakes_workers_after_the_commit(migrated_postgres_url: str) -> None:
    store = open_store(migrated_postgres_url)
    try:
        listener = store.listen()
        with store.transaction():
            store.enqueue_and_wake([NewJob(new_id(), "work")])
            assert listener.wait(0.0) == frozenset()
        assert without_calls(listener.wait(PATIENCE)) == {"ready:default"}
    finally:
        store.close()
