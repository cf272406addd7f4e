"""Tests of listening on the event loop's thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import psycopg
import pytest
from tests.engine.cluster_kit import eventually

from tidemill import App
from tidemill.clock import SystemClock
from tidemill.engine.listener import WakeupListener
from tidemill.engine.loop_listener import LoopListener, Watched
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store

PATIENCE = 30.0
LISTENERS = "from pg_stat_activity where datname = current_database() and query ilike 'listen%'"


class Loop:
    """An event loop on its own thread, and a record of which thread received each topic."""

    def __init__(self, store: Store) -> None:
        self.listener = WakeupListener(store, SystemClock())
        self.heard: list[tuple[str, str]] = []
        self.listener.subscribe(
            lambda topics: self.heard.extend((topic, threading.current_thread().name) for topic in topics)
        )
        self.loop = asyncio.new_event_loop()
        self.hearing = LoopListener(self.listener)
        self._thread = threading.Thread(target=self._run, name="the loop")
        self.listener.start()
        eventually(lambda: self.by("change") is not None)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.hearing.open(self.loop)
        self.loop.run_forever()
        self.hearing.close()
        self.loop.close()

    def by(self, topic: str) -> str | None:
        """The thread that received the topic."""
        return next((name for each, name in self.heard if each == topic), None)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.listener.close()


@pytest.fixture
def store(migrated_postgres_url: str) -> Iterator[Store]:
    made = open_store(migrated_postgres_url)
    yield made
    made.close()


@pytest.fixture
def loop(store: Store) -> Iterator[Loop]:
    made = Loop(store)
    yield made
    made.close()


def say(store: Store, loop: Loop, by: str) -> None:
    """Send notifications until this thread receives one. Each must be received by some thread."""
    said: list[str] = []

    def again() -> bool:
        said.append(f"word {len(said)}")
        store.notify([said[-1]])
        eventually(lambda: loop.by(said[-1]) is not None)
        return loop.by(said[-1]) == by

    eventually(again)


def test_the_event_loop_receives_notifications(store: Store, loop: Loop) -> None:
    say(store, loop, "the loop")


def test_while_the_event_loop_is_blocked_the_listener_thread_receives(store: Store, loop: Loop) -> None:
    say(store, loop, "the loop")
    go = threading.Event()
    loop.loop.call_soon_threadsafe(go.wait, PATIENCE)
    try:
        say(store, loop, "tidemill-listener")
    finally:
        go.set()
    say(store, loop, "the loop")


def test_after_a_lost_connection_the_loop_listens_again_and_reports_a_change(
    store: Store, loop: Loop, migrated_postgres_url: str
) -> None:
    say(store, loop, "the loop")
    for _ in range(2):
        loop.heard.clear()
        with psycopg.connect(migrated_postgres_url, autocommit=True) as raw:
            assert raw.execute(f"select pg_terminate_backend(pid) {LISTENERS}").fetchall()
        eventually(lambda: loop.by("change") is not None)
        say(store, loop, "the loop")


def test_a_listener_closed_first_leaves_the_event_loop_working(store: Store, loop: Loop) -> None:
    say(store, loop, "the loop")
    loop.listener.close()
    turned = threading.Event()
    loop.loop.call_soon_threadsafe(turned.set)
    assert turned.wait(PATIENCE)


def test_a_listener_without_a_file_descriptor_stays_on_its_thread() -> None:
    store = MemoryStore()
    loop = Loop(store)
    try:
        assert not isinstance(loop.listener.listener, Watched)
        say(store, loop, "tidemill-listener")
    finally:
        loop.close()
        store.close()


def test_a_worker_is_notified_of_a_job_on_its_event_loop(
    migrated_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with App(migrated_postgres_url) as app, App(migrated_postgres_url) as other:
        begun: list[str] = []

        @app.task(name="work")
        async def work() -> None:
            begun.append(threading.current_thread().name)

        @other.task(name="work")
        async def asked() -> None: ...

        told: list[str] = []
        passing = WakeupListener.tell

        def tell(listener: WakeupListener, topics: frozenset[str]) -> None:
            if "ready:default" in topics:
                told.append(threading.current_thread().name)
            passing(listener, topics)

        monkeypatch.setattr(WakeupListener, "tell", tell)
        with app.worker(children=0):

            def heard() -> bool:
                asked.enqueue().result(timeout=PATIENCE)
                return "tidemill-loop" in told

            eventually(heard)
        assert set(begun) == {"tidemill-loop"}
