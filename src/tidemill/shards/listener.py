"""Wake-ups of several stores in one listener."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from tidemill.errors import StoreError
from tidemill.stores.base import Listener, Store

_AGAIN = 1.0  # seconds after which a store that did not answer is listened to again
_WAIT = 2.0  # timeout of one wait


class MergedListener:
    """Listens to several stores, with a thread for each. A store that does not answer delays no other."""

    def __init__(self, stores: Iterable[Store]) -> None:
        self._changed = threading.Condition()
        self._topics: set[str] = set()
        self._is_closed = threading.Event()
        self._listeners: dict[int, Listener] = {}
        self._threads = [
            threading.Thread(
                target=self._loop, args=[number, store], name="tidemill-shard-listener", daemon=True
            )
            for number, store in enumerate(stores)
        ]
        for thread in self._threads:
            thread.start()

    def _loop(self, number: int, store: Store) -> None:
        was_away = False
        while not self._is_closed.is_set():
            try:
                listener = store.listen()
                with self._changed:
                    self._listeners[number] = listener
                if was_away:
                    self._hear({"change", "reconnected"})
                while not self._is_closed.is_set():
                    if topics := listener.wait(_WAIT):
                        self._hear(topics)
            except StoreError:
                was_away = True
                self._close(number)
                self._is_closed.wait(_AGAIN)
        self._close(number)

    def _hear(self, topics: Iterable[str]) -> None:
        with self._changed:
            self._topics.update(topics)
            self._changed.notify_all()

    def _close(self, number: int) -> None:
        with self._changed:
            listener = self._listeners.pop(number, None)
        if listener is not None:
            listener.close()

    def wait(self, timeout: float) -> frozenset[str]:
        """The topics received since the last call; empty after ``timeout`` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._topics or self._is_closed.is_set(), timeout)
            topics, self._topics = frozenset(self._topics), set()
            return topics

    def close(self) -> None:
        """Stop the threads and close the listeners."""
        self._is_closed.set()
        with self._changed:
            self._changed.notify_all()
        for number in range(len(self._threads)):
            self._close(number)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
