"""Laws of wake-ups: they are hints, but with nothing in the way they arrive."""

from __future__ import annotations

import threading

from tidemill.stores.base import Listener, Store
from tidemill.testing.conformance.kit import together

PATIENCE = 30.0
"""Seconds after which a wake-up counts as lost; a working store needs a small part of one."""


def _hear(listener: Listener, wanted: set[str]) -> set[str]:
    """Listen until everything wanted was heard, or until one wait brought nothing."""
    heard: set[str] = set()
    while not wanted <= heard:
        topics = listener.wait(PATIENCE)
        if not topics:
            break
        heard |= topics
    return heard


class SignalLaws:
    """Whoever listens is woken."""

    def test_a_wake_up_is_heard(self, store: Store) -> None:
        listener = store.listen()
        try:
            store.notify(["jobs"])
            assert _hear(listener, {"jobs"}) == {"jobs"}
        finally:
            listener.close()

    def test_a_thread_that_waits_is_woken_by_another(self, store: Store) -> None:
        listener = store.listen()
        waiting = threading.Event()

        def wait() -> set[str]:
            waiting.set()
            return _hear(listener, {"jobs"})

        def call() -> set[str]:
            assert waiting.wait(PATIENCE)
            store.notify(["jobs"])
            return set()

        try:
            assert together([wait, call]) == [{"jobs"}, set()]
        finally:
            listener.close()

    def test_every_listener_hears_every_topic(self, store: Store) -> None:
        first, second = store.listen(), store.listen()
        topics = {"jobs", "queue:mail", "odd “x” 🦊 %s '"}
        try:
            store.notify(sorted(topics))
            assert _hear(first, topics) == topics
            assert _hear(second, topics) == topics
        finally:
            first.close()
            second.close()

    def test_calls_in_quick_succession_are_all_heard_though_merged(self, store: Store) -> None:
        listener = store.listen()
        topics = {f"topic-{n}" for n in range(50)}
        try:
            for topic in sorted(topics):
                store.notify([topic])
                store.notify(["again"])
            assert _hear(listener, topics | {"again"}) == topics | {"again"}
        finally:
            listener.close()

    def test_nothing_is_heard_when_nobody_called(self, store: Store) -> None:
        listener = store.listen()
        try:
            assert listener.wait(0) == frozenset()
            store.notify([])
            assert listener.wait(0) == frozenset()
        finally:
            listener.close()

    def test_a_listener_closed_and_others_still_hear(self, store: Store) -> None:
        closed, listener = store.listen(), store.listen()
        closed.close()
        try:
            store.notify(["jobs"])
            assert _hear(listener, {"jobs"}) == {"jobs"}
        finally:
            listener.close()

    def test_notify_without_listeners_is_harmless(self, store: Store) -> None:
        store.notify(["jobs"])
        store.notify([])
