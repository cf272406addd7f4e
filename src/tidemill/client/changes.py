"""Change hints: one thread listens to a store's wake-ups for all subscribers.

A hint names only the kinds of things that changed, so subscribers must read again. The thread itself does not query the
store.
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
"""Minimum number of seconds between two hints; changes in between are combined into one hint."""

KINDS = ("jobs", "queues", "schedules", "settings", "tasks", "workers")
"""The kinds of things that may change."""

_TOPICS = {
    "scheduled": ("jobs",),
    "ended": ("jobs",),
    "progress": ("jobs",),
    "cancel": ("jobs",),
    "schedules": ("schedules",),
    "change": KINDS,
}
_SAY_AGAIN = 20.0  # seconds between two notices to the workers that there are watchers
_LISTEN = 2.0  # timeout of one wait, in seconds
_AGAIN = 1.0  # delay after a failure, in seconds

Heard = Callable[[frozenset[str]], None]


class Changes:
    """Calls every subscriber, in one background thread, with the kinds of things that changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._subscribers: list[Heard] = []
        self._thread: threading.Thread | None = None
        self._listener: Listener | None = None
        self._closed = threading.Event()
        self.told = 0
        """Number of hints so far; a result computed at a lower number may be out of date."""

    def subscribe(self, heard: Heard) -> Callable[[], None]:
        """Call ``heard``, which must not block, for each later change; return a function that ends the subscription."""
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
                    # Subscribers may have read before this listener existed, and would miss changes made in between.
                    topics = frozenset({"change"})
                if time.monotonic() - said > _SAY_AGAIN:
                    # Workers publish the end of every job only while there are watchers.
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
            except Exception:  # noqa: BLE001  (one failing subscriber must not affect the others)
                _log.exception("cannot notify the listeners for changes")

    def _drop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def close(self) -> None:
        """Stop the thread; subscribers are not called after this. Closing twice is harmless."""
        self._closed.set()
        with self._lock:
            thread, listener = self._thread, self._listener
        if listener is not None:
            listener.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(10)


def kinds_of(topics: Iterable[str]) -> frozenset[str]:
    """Return the kinds of things that these wake-up topics concern.

    >>> sorted(kinds_of({"ready:media", "schedules", "tick"}))
    ['jobs', 'schedules']
    """
    found: set[str] = set()
    for topic in topics:
        found.update(("jobs",) if topic.startswith("ready:") else _TOPICS.get(topic, ()))
    return frozenset(found)
