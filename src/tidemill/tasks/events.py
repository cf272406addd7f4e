"""Events about jobs, and their subscribers in this process.

An exception in a subscriber is logged and does not affect other subscribers.
"""

from __future__ import annotations

import fnmatch
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Self
from uuid import UUID

_log = logging.getLogger("tidemill.events")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: in this process, or in another one that shares the store.

    Names: ``job.enqueued``; ``job.started``, ``job.finished`` and ``job.put_off`` (it has not ended and continues
    later) from a worker; ``job.cancelled``, ``job.cancel_requested``, ``job.retried``, ``job.approved``,
    ``job.rejected``, ``job.run_now``, ``job.rescheduled``, ``job.rerun`` and ``job.deleted`` from a person or a program
    that acts on a job; ``job.archived`` and ``job.purged`` from an archive run; or a custom name. ``state`` is the job's state after the event.
    """

    name: str
    at: datetime
    job_id: UUID | None = None
    task: str | None = None
    tenant: str | None = None
    state: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)
    #: The number of an event that the store recorded, which is the same when it is delivered again; None for others.
    seq: int | None = None


Subscriber = Callable[[Event], object]


class Subscription:
    """A subscription, which ends with ``close`` or with its ``with`` block."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close

    def close(self) -> None:
        """End the subscription. Harmless if called twice."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Events:
    """The subscribers of an app in this process.

    Patterns work like file name patterns: ``job.*`` matches all job events.
    """

    def __init__(self) -> None:
        self._forward: Subscriber | None = None
        #: records events of users for the subscriptions of the store
        self.record: Subscriber | None = None
        self._lock = threading.Lock()
        self._subscribers: list[tuple[str, Subscriber]] = []
        self.wanted = False  #: whether there is any subscriber; read for every enqueued job

    def subscribe(self, pattern: str, subscriber: Subscriber) -> Subscription:
        """Call the subscriber with every matching event, in the thread that publishes it."""
        entry = (pattern, subscriber)
        with self._lock:
            self._subscribers = [*self._subscribers, entry]
            self.wanted = True

        def close() -> None:
            with self._lock:
                self._subscribers = [known for known in self._subscribers if known is not entry]
                self.wanted = bool(self._subscribers) or self._forward is not None

        return Subscription(close)

    def on(self, pattern: str) -> Callable[[Subscriber], Subscriber]:
        """Subscribe the decorated function to matching events."""

        def add(subscriber: Subscriber) -> Subscriber:
            self.subscribe(pattern, subscriber)
            return subscriber

        return add

    def publish(self, event: Event) -> None:
        """Call the matching subscribers. An exception in one of them is logged, and the others are still called."""
        if self._forward is not None:
            self._forward(event)
            return
        if self.record is not None and not event.name.startswith("job."):
            self.record(event)
        for pattern, subscriber in self._subscribers:
            if _matches(pattern, event.name):
                try:
                    subscriber(event)
                except Exception:  # noqa: BLE001  (a failing subscriber must not affect the others)
                    _log.exception("a subscriber to %s failed", event.name)

    def wants(self, name: str) -> bool:
        """Whether there is a subscriber for events of this name."""
        return any(_matches(pattern, name) for pattern, _ in self._subscribers)

    def forward(self, receiver: Subscriber) -> None:
        """Pass every event to this receiver instead of the subscribers.

        A child process forwards its events to the process of its worker, where the subscribers are called once.
        """
        self._forward = receiver
        self.wanted = True


def _matches(pattern: str, name: str) -> bool:
    return pattern == name or fnmatch.fnmatchcase(name, pattern)
