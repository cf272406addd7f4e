"""Live subscriptions: events of all processes, from now on, while this process runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import uuid4

from tidemill.clock import Clock
from tidemill.delivery.background import pin_of
from tidemill.delivery.subscriber import event_of
from tidemill.domain.subscriptions import SETTING, TOPIC, StoredSubscription
from tidemill.errors import StoreError
from tidemill.stores.base import Store
from tidemill.tasks.events import Event, Subscriber

_log = logging.getLogger("tidemill.delivery")

LASTS = timedelta(seconds=90)
"""How long events are recorded for a process that has died."""

_RENEW = LASTS.total_seconds() / 3
_POLL = 2.0
_BATCH = 500


class LiveSubscription:
    """Calls a handler with the events of every process that uses the store. Events of the past are not delivered."""

    def __init__(self, store: Store, clock: Clock, patterns: Sequence[str], handler: Subscriber) -> None:
        self._store, self._clock, self._handler = store, clock, handler
        self._patterns = tuple(patterns)
        self.name = f"live/{uuid4().hex}"
        self._closing = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="tidemill-live-events", daemon=True)
        self._error: StoreError | None = None

    def start(self) -> None:
        """Start the thread; returns when the store records events for it."""
        self._thread.start()
        self._begun.wait(30)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """End the subscription and delete its events. Closing twice is harmless."""
        self._closing.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(10)

    def _loop(self) -> None:
        try:
            listener = self._store.listen()
            self._renew()
        except StoreError as error:
            self._error = error
            self._begun.set()
            return
        self._begun.set()
        renewed = read_at = self._clock.monotonic()
        try:
            while not self._closing.is_set():
                topics = listener.wait(_POLL)
                if topics and TOPIC not in topics and self._clock.monotonic() - read_at < _POLL:
                    continue
                read_at = self._clock.monotonic()
                try:
                    if self._clock.monotonic() - renewed > _RENEW:
                        self._renew()
                        renewed = self._clock.monotonic()
                    self._deliver()
                except StoreError as error:
                    _log.warning("cannot read events: %s", error)
                    self._closing.wait(1.0)
        finally:
            listener.close()
            self._drop()

    def _renew(self) -> None:
        now = pin_of(self._clock) or self._store.now()
        subscription = StoredSubscription(self.name, self._patterns, until=now + LASTS)
        self._store.put_settings([subscription.setting()], now=pin_of(self._clock))
        self._store.settings()
        self._store.notify(["change"])

    def _deliver(self) -> None:
        while not self._closing.is_set():
            events = self._store.waiting_events(self.name, limit=_BATCH, now=pin_of(self._clock))
            if not events:
                return
            self._store.settle_events([event.seq for event in events])
            for event in events:
                self._call(event_of(event))

    def _call(self, event: Event) -> None:
        try:
            self._handler(event)
        except Exception:  # noqa: BLE001  (a failing handler must not end the subscription)
            _log.exception("a subscriber to %s failed", event.name)

    def _drop(self) -> None:
        try:
            self._store.drop_settings([SETTING + self.name])
            self._store.drop_subscription(self.name)
            self._store.settings()
        except StoreError as error:
            _log.debug("the subscription %s ends by itself: %s", self.name, error)


class LiveHub:
    """One live subscription that all watchers of a process share; it runs while there is a watcher."""

    def __init__(self, make: Callable[[Subscriber], LiveSubscription]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._watchers: tuple[Subscriber, ...] = ()
        self._live: LiveSubscription | None = None

    def watch(self, watcher: Subscriber) -> Callable[[], None]:
        """Call the watcher with every event from now on; call the returned function to end that."""
        with self._lock:
            self._watchers = (*self._watchers, watcher)
            if self._live is None:
                self._live = self._make(self._tell)
                self._live.start()

        def close() -> None:
            with self._lock:
                self._watchers = tuple(one for one in self._watchers if one is not watcher)
                live, self._live = (None, self._live) if self._watchers else (self._live, None)
            if live is not None:
                live.close()

        return close

    def _tell(self, event: Event) -> None:
        for watcher in self._watchers:
            watcher(event)
