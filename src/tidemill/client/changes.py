"""Hearing that something moved: one thread hears a store's wake-ups for all who want to know in this process.

What is told is a hint of which kind of thing moved, never which one: whoever hears it looks again. It asks the store nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from tidemill.errors import StoreError
from tidemill.stores.base import Listener, Store

_log = logging.getLogger("tidemill.client")

INTERVAL = 0.5
"""Seconds between two hints at least; what is heard meanwhile is one hint."""

KINDS = ("jobs", "queues", "schedules", "settings", "tasks", "workers")
"""What may move."""

_TOPICS = {
    "scheduled": ("jobs",),
    "ended": ("jobs",),
    "progress": ("jobs",),
    "cancel": ("jobs",),
    "schedules": ("schedules",),
    "change": KINDS,
}
_SAY_AGAIN = 20.0  # seconds after which workers are told again that somebody watches
_LISTEN = 2.0  # one wait
_AGAIN = 1.0  # after a failure

Heard = Callable[[frozenset[str]], None]


class Changes:
    """Calls every subscriber, on a thread of its own, with the kinds of things that moved."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._subscribers: list[Heard] = []
        self._thread: threading.Thread | None = None
        self._listener: Listener | None = None
        self._closed = threading.Event()
        self.told = 0
        """How often something was told to have moved: what was made at a lower count may lack it."""

    def subscribe(self, heard: Heard) -> Callable[[], None]:
        """Hear of what moves from now on; it must not block. Returns what ends it."""
        with self._lock:
            self._subscribers.append(heard)
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._loop, name="tidemill-changes", daemon=True)
                self._thread.start()

        def end() -> None:
            with self._lock:
                self._subscribers = [other for other in self._subscribers if other is not heard]

        return end

    def _loop(self) -> None:
        said = float("-inf")
        missed = False
        listener: Listener | None = None
        while True:
            with self._lock:
                if self._closed.is_set() or not self._subscribers:
                    self._thread = None
                    listener, self._listener = self._listener, None
                    break
            try:
                topics: frozenset[str] = frozenset()
                if self._listener is None:
                    self._listener = self._store.listen()
                    topics, missed = (frozenset({"change"}) if missed else topics), True
                if time.monotonic() - said > _SAY_AGAIN:
                    # Workers tell of every end only while somebody watches.
                    self._store.notify(["watch"])
                    said = time.monotonic()
                topics |= self._listener.wait(0 if topics else _LISTEN)
            except StoreError:
                self._drop()
                self._closed.wait(_AGAIN)
                continue
            kinds = kinds_of(topics)
            if kinds and not self._closed.is_set():
                self._tell(kinds)
                self._closed.wait(INTERVAL)
        if listener is not None:
            listener.close()

    def _tell(self, kinds: frozenset[str]) -> None:
        with self._lock:
            self.told += 1
            subscribers = list(self._subscribers)
        for heard in subscribers:
            try:
                heard(kinds)
            except Exception:  # noqa: BLE001  (one who fails keeps nobody else from hearing)
                _log.exception("whoever wants to know that something moved could not be told")

    def _drop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def close(self) -> None:
        """Nobody is told anything more; closing twice is harmless."""
        self._closed.set()
        with self._lock:
            thread, listener = self._thread, self._listener
        if listener is not None:
            listener.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(10)


def kinds_of(topics: Iterable[str]) -> frozenset[str]:
    """The kinds of things that a store's wake-ups speak of.

    >>> sorted(kinds_of({"ready:media", "schedules", "tick"}))
    ['jobs', 'schedules']
    """
    found: set[str] = set()
    for topic in topics:
        found.update(("jobs",) if topic.startswith("ready:") else _TOPICS.get(topic, ()))
    return frozenset(found)
