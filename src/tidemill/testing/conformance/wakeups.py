"""Laws of wake-ups: they are hints, but arrive under normal conditions."""

from __future__ import annotations

import threading
from datetime import timedelta

from tidemill.domain.calls import read_calls
from tidemill.stores.base import Listener, Store
from tidemill.testing.conformance.kit import a_job, together

PATIENCE = 30.0
"""Seconds after which a wake-up counts as lost; a working store needs a fraction of one."""


def _receive(listener: Listener, wanted: set[str]) -> set[str]:
    """Wait until all wanted topics have arrived, or until a wait times out."""
    received: set[str] = set()
    while not wanted <= received:
        topics = listener.wait(PATIENCE)
        if not topics:
            break
        received |= topics
    return received


class SignalLaws:
    """Listeners are woken."""

    def test_a_wake_up_is_received(self, store: Store) -> None:
        listener = store.listen()
        try:
            store.notify(["jobs"])
            assert _receive(listener, {"jobs"}) == {"jobs"}
        finally:
            listener.close()

    def test_an_enqueue_wakes_the_workers_of_its_queues(self, store: Store) -> None:
        listener = store.listen()
        names = ["mail", "odd “x” 🦊 %s '"]
        try:
            for queue in names:  # the second one follows within the gap between two wake-ups
                store.enqueue_and_wake([a_job(queue=queue)])
            store.enqueue_and_wake([a_job(queue="many"), a_job(delay=timedelta(hours=1))])
            topics = {"ready:many", "scheduled", *(f"ready:{queue}" for queue in names)}
            received = _receive(listener, topics)
            assert {topic for topic in received if not topic.startswith("call:")} == topics
            assert read_calls(received)
        finally:
            listener.close()

    def test_a_waiting_thread_is_woken_by_another(self, store: Store) -> None:
        listener = store.listen()
        waiting = threading.Event()

        def wait() -> set[str]:
            waiting.set()
            return _receive(listener, {"jobs"})

        def call() -> set[str]:
            assert waiting.wait(PATIENCE)
            store.notify(["jobs"])
            return set()

        try:
            assert together([wait, call]) == [{"jobs"}, set()]
        finally:
            listener.close()

    def test_every_listener_receives_every_topic(self, store: Store) -> None:
        first, second = store.listen(), store.listen()
        topics = {"jobs", "queue:mail", "odd “x” 🦊 %s '"}
        try:
            store.notify(sorted(topics))
            assert _receive(first, topics) == topics
            assert _receive(second, topics) == topics
        finally:
            first.close()
            second.close()

    def test_rapid_notifications_are_all_received(self, store: Store) -> None:
        listener = store.listen()
        topics = {f"topic-{n}" for n in range(50)}
        try:
            for topic in sorted(topics):
                store.notify([topic])
                store.notify(["again"])
            assert _receive(listener, topics | {"again"}) == topics | {"again"}
        finally:
            listener.close()

    def test_without_a_notification_nothing_is_received(self, store: Store) -> None:
        listener = store.listen()
        try:
            assert listener.wait(0) == frozenset()
            store.notify([])
            assert listener.wait(0) == frozenset()
        finally:
            listener.close()

    def test_closing_a_listener_does_not_affect_others(self, store: Store) -> None:
        closed, listener = store.listen(), store.listen()
        closed.close()
        try:
            store.notify(["jobs"])
            assert _receive(listener, {"jobs"}) == {"jobs"}
        finally:
            listener.close()

    def test_notify_without_listeners_is_harmless(self, store: Store) -> None:
        store.notify(["jobs"])
        store.notify([])
