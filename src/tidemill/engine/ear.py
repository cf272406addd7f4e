"""Hears a store's wake-ups on a thread of its own and passes them on. What is heard is a hint; whoever acts also polls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidemill.clock import Clock
from tidemill.errors import StoreError
from tidemill.stores.base import Listener, Store

_log = logging.getLogger("tidemill.engine")

TICK = "tick"
"""What whoever does the duties says every few seconds, so that the others know that they are done."""

Heard = Callable[[frozenset[str]], None]

_LONGEST = 3600.0  # one wait
_AGAIN = 1.0  # after a failure


class Ear:
    """Calls every subscriber with the topics heard. ``heard_at`` says when a topic was last heard, by the monotonic clock."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._subscribers: list[Heard] = []
        self._heard: dict[str, float] = {}
        self._closed = threading.Event()
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._listen, name="tidemill-ear", daemon=True)

    def subscribe(self, heard: Heard) -> None:
        """Have it called, on the thread that hears, with what is heard from now on; it must not block."""
        self._subscribers.append(heard)

    def unsubscribe(self, heard: Heard) -> None:
        """Call it no more."""
        self._subscribers = [other for other in self._subscribers if other != heard]

    def heard_at(self, topic: str) -> float:
        """When it was last heard; minus infinity if never."""
        return self._heard.get(topic, float("-inf"))

    @property
    def listener(self) -> Listener | None:
        """What it listens with; None before it has begun, and while that has failed."""
        return self._listener

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                if self._listener is None:
                    self._listener = self._store.listen()
                    topics = frozenset({"change"})  # something may have been missed
                else:
                    topics = self._listener.wait(_LONGEST)
            except Exception as error:  # noqa: BLE001  (a worker that has gone deaf in silence only polls)
                if not isinstance(error, StoreError):
                    _log.exception("listening failed; it is tried again")
                self._drop()
                self._closed.wait(_AGAIN)
                continue
            if topics:
                self.tell(topics)

    def tell(self, topics: frozenset[str]) -> None:
        """Pass on what was heard; whoever hears it in the ear's stead says it here."""
        if self._closed.is_set():
            return
        now = self._clock.monotonic()
        for topic in topics:
            self._heard[topic] = now
        for subscriber in self._subscribers:
            try:
                subscriber(topics)
            except Exception:  # noqa: BLE001  (one who fails keeps nobody else from hearing)
                _log.exception("a wake-up could not be passed on")

    def _drop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def close(self) -> None:
        """Stop listening; closing twice is harmless."""
        self._closed.set()
        listener = self._listener
        if listener is not None:
            listener.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(10)
