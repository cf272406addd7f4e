"""Events in process: what happens to jobs here, told to whoever asked. A subscriber's failure is its own."""

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
    """Something that happened. ``name`` is ``job.enqueued``, ``job.started``, ``job.finished``, ``job.put_off`` (it has not ended,
    and goes on later), or a name of your own.
    """

    name: str
    at: datetime
    job_id: UUID | None = None
    task: str | None = None
    tenant: str | None = None
    state: str | None = None
    data: Mapping[str, object] = field(default_factory=dict)


Subscriber = Callable[[Event], object]


class Subscription:
    """Ends with ``close``, or with the block it opens."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close

    def close(self) -> None:
        """Hear no more; closing twice is harmless."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Events:
    """Who wants to hear what. Patterns are those of file names: ``job.*`` is every event of jobs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: list[tuple[str, Subscriber]] = []

    def subscribe(self, pattern: str, subscriber: Subscriber) -> Subscription:
        """Call the subscriber with every event whose name matches, in the thread where it happens."""
        entry = (pattern, subscriber)
        with self._lock:
            self._subscribers = [*self._subscribers, entry]

        def close() -> None:
            with self._lock:
                self._subscribers = [known for known in self._subscribers if known is not entry]

        return Subscription(close)

    def on(self, pattern: str) -> Callable[[Subscriber], Subscriber]:
        """The same as a decorator."""

        def add(subscriber: Subscriber) -> Subscriber:
            self.subscribe(pattern, subscriber)
            return subscriber

        return add

    def publish(self, event: Event) -> None:
        """Tell everybody; one who fails is logged and keeps nobody else from hearing."""
        for pattern, subscriber in self._subscribers:
            if pattern == event.name or fnmatch.fnmatchcase(event.name, pattern):
                try:
                    subscriber(event)
                except Exception:  # noqa: BLE001  (a subscriber's failure is its own)
                    _log.exception("a subscriber to %s failed", event.name)

    @property
    def wanted(self) -> bool:
        """Whether anybody listens at all."""
        return bool(self._subscribers)
