"""Watching a store: hints about changes, and waiting for jobs.

Each of the two runs one thread per store for all its subscribers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.domain.join_counts import GROUP_ENDS
from tidemill.domain.streams import topic_of
from tidemill.errors import StoreError
from tidemill.shards.absence import noting_missing
from tidemill.stores.base import Listener, Store
from tidemill.stores.wakeup_messages import CHANGE

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

ChangeHeard = Callable[[frozenset[str]], None]


class Changes:
    """Calls every subscriber, in one background thread, with the kinds of things that changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._subscribers: list[ChangeHeard] = []
        self._thread: threading.Thread | None = None
        self._listener: Listener | None = None
        self._closed = threading.Event()
        self.told = 0
        """Number of hints so far; a result computed at a lower number may be out of date."""

    def subscribe(self, heard: ChangeHeard) -> Callable[[], None]:
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
        warned_at = float("-inf")
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
                if time.monotonic() - warned_at > _SAY_AGAIN:
                    # Workers publish the end of every job only while there are watchers.
                    self._store.notify(["watch"])
                    warned_at = time.monotonic()
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


POLL = 0.25
"""Seconds between two reads when no notification arrives."""

TOPICS = frozenset({"ended", "progress", "watch", "change"})
"""Notification topics after which the thread reads the watched jobs; ``change`` stands for any change."""

_LINGER = 20  # polls without a watcher before the thread stops

JobHeard = Callable[[JobRow | None], None]
"""Callback for every new snapshot of a job, and for None when the job no longer exists."""

StreamHeard = Callable[[], None]
"""Callback after items may have been written to a stream; it must not block or raise."""


class Waiter:
    """Notifies watchers about jobs of one store. A watcher runs in the waiting thread and must not block it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._watchers: dict[UUID, list[JobHeard]] = {}
        self._readers: dict[str, list[StreamHeard]] = {}
        self._fresh = False
        self._thread: threading.Thread | None = None
        self._listener: Listener | None = None
        self._closed = False

    def watch(self, id: UUID, heard: JobHeard) -> Callable[[], None]:
        """Watch this job, starting with its current state; return a function that stops watching."""
        with self._changed:
            self._watchers.setdefault(id, []).append(heard)
            self._fresh = True
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._loop, name="tidemill-waiting", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        self._wake()
        return partial(self.unwatch, id, heard)

    def unwatch(self, id: UUID, heard: JobHeard) -> None:
        """Remove a watcher of this job; removing it twice is harmless."""
        with self._changed:
            left = [other for other in self._watchers.get(id, ()) if other is not heard]
            if left:
                self._watchers[id] = left
            else:
                self._watchers.pop(id, None)

    def follow(self, id: UUID, heard: JobHeard, written: StreamHeard) -> Callable[[], None]:
        """Watch this job and its streams; return a function that stops watching.

        ``written`` is called when items may have been written to one of its streams.
        """
        topic = topic_of(id)
        with self._changed:
            self._readers.setdefault(topic, []).append(written)
        unwatch = self.watch(id, heard)

        def end() -> None:
            unwatch()
            with self._changed:
                left = [other for other in self._readers.get(topic, ()) if other is not written]
                if left:
                    self._readers[topic] = left
                else:
                    self._readers.pop(topic, None)

        return end

    def _tell_readers(self, topics: frozenset[str]) -> None:
        if not self._readers:
            return
        with self._changed:
            readers = [
                written
                for topic, all_written in self._readers.items()
                if topic in topics or "change" in topics
                for written in all_written
            ]
        for written in readers:
            written()

    def _wake(self) -> None:
        """Notify the thread through the store, in case it is blocked on the listener."""
        if self._listener is not None:
            self._store.notify(["watch"])

    def _loop(self) -> None:
        seen: dict[UUID, JobRow | None] = {}
        idle = 0
        warned_at = float("-inf")
        try:
            self._listener = self._store.listen()
        except StoreError:
            self._listener = None
        while True:
            with self._changed:
                if self._closed:
                    return
                wanted, fresh, self._fresh = list(self._watchers), self._fresh, False
                idle = 0 if wanted else idle + 1
                if idle > _LINGER:
                    self._thread = None
                    break
            if fresh:
                seen = {}
            if wanted and time.monotonic() - warned_at > _SAY_AGAIN:
                # Workers publish the end of every job only while there are watchers.
                warned_at = time.monotonic()
                self._wake()
            self._look(wanted, seen)
            self._pause()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _look(self, wanted: list[UUID], seen: dict[UUID, JobRow | None]) -> None:
        if not wanted:
            return
        try:
            with noting_missing() as missing:
                found = {job.id: job for job in self._store.get(wanted, tenant=ALL_TENANTS)}
        except StoreError:
            return  # the store may recover; otherwise the waiters' own timeouts apply
        for id in wanted:
            job = found.get(id)
            # A job that was not found may be in a shard that did not answer.
            if (id in seen and seen[id] == job) or (job is None and missing):
                continue
            seen[id] = job
            with self._changed:
                watchers = list(self._watchers.get(id, ()))
            for heard in watchers:
                try:
                    heard(job)
                except Exception:  # noqa: BLE001  (a user's callback, or a closed loop; others still wait)
                    _log.exception("cannot notify the watchers of job %s", id)

    def _pause(self) -> None:
        if self._listener is not None:
            ends = time.monotonic() + POLL
            while (left := ends - time.monotonic()) > 0:
                heard = self._listener.wait(left)
                self._tell_readers(heard)
                if heard & TOPICS or self._fresh or self._closed:
                    return
        else:
            with self._changed:
                if not self._fresh and not self._closed:
                    self._changed.wait(POLL)

    def close(self) -> None:
        """Stop the thread; watchers receive nothing after this."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        listener = self._listener
        if listener is not None:
            listener.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join()


_GROUP_TOPICS = frozenset({GROUP_ENDS, CHANGE})


def await_groups(listener: Listener, seconds: float) -> None:
    """Wait until some flow, map or batch has ended, or for this time. The ends of single jobs are not reported here."""
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        topics = listener.wait(left)
        if not topics or topics & _GROUP_TOPICS:
            return
