"""The thread that receives a store's wake-ups and passes them to subscribers.

Wake-ups are hints: every subscriber must also poll.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from tidemill.clock import Clock
from tidemill.errors import StoreError
from tidemill.stores.base import Listener, Store
from tidemill.stores.wakeup_messages import DISCONNECTED, RECONNECTED

_log = logging.getLogger("tidemill.engine")

TICK = "tick"
"""The topic that the leader notifies every few seconds, so that other workers know that the duties run."""

Heard = Callable[[frozenset[str]], None]

_LONGEST = 3600.0  # seconds of one wait
_AGAIN = 1.0  # seconds after a failure


class WakeupListener:
    """Calls every subscriber with the received topics.

    ``heard_at`` is the monotonic time at which a topic was last received.
    """

    def __init__(self, store: Store, clock: Clock, listen: Callable[[], Listener] | None = None) -> None:
        """Listen to the store, or to what ``listen`` opens instead."""
        self._listen_to, self._clock = listen or store.listen, clock
        self._subscribers: list[Heard] = []
        self._heard: dict[str, float] = {}
        self._closed = threading.Event()
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._listen, name="tidemill-listener", daemon=True)

    def subscribe(self, heard: Heard) -> None:
        """Call ``heard`` with all topics received from now on, on the listening thread. It must not block."""
        self._subscribers.append(heard)

    def unsubscribe(self, heard: Heard) -> None:
        """Stop calling ``heard``."""
        self._subscribers = [other for other in self._subscribers if other != heard]

    def heard_at(self, topic: str) -> float:
        """When the topic was last received; minus infinity if never."""
        return self._heard.get(topic, float("-inf"))

    @property
    def listener(self) -> Listener | None:
        """The store's listener; None before listening has begun, and after it failed."""
        return self._listener

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _listen(self) -> None:
        missed = frozenset({"change"})
        while not self._closed.is_set():
            try:
                if self._listener is None:
                    self._listener = self._listen_to()
                    topics = missed  # a wake-up may have been missed before
                    missed = frozenset({"change", RECONNECTED})
                else:
                    topics = self._listener.wait(_LONGEST)
            except Exception as error:  # noqa: BLE001  (without a listener, the worker would only poll)
                if not isinstance(error, StoreError):
                    _log.exception("listening failed; retrying")
                self._drop()
                self._closed.wait(_AGAIN)
                continue
            if topics:
                self.tell(topics)

    def tell(self, topics: frozenset[str]) -> None:
        """Pass topics to the subscribers. Also called by code that receives wake-ups in place of this thread."""
        if self._closed.is_set():
            return
        now = self._clock.monotonic()
        if DISCONNECTED in topics:
            self._heard.clear()  # no tick follows, so nobody may rely on the last one
        for topic in topics:
            self._heard[topic] = now
        for subscriber in self._subscribers:
            try:
                subscriber(topics)
            except Exception:  # noqa: BLE001  (a failing subscriber must not affect the others)
                _log.exception("cannot forward a wake-up")

    def _drop(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def close(self) -> None:
        """Stop listening. Closing twice is harmless."""
        self._closed.set()
        listener = self._listener
        if listener is not None:
            listener.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(10)
