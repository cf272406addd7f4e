"""Background duties of an app: they run in its workers, each under a lease of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from tidemill.clock import Clock, ManualClock
from tidemill.domain.cluster import holder_data
from tidemill.domain.subscriptions import TOPIC
from tidemill.errors import StoreError
from tidemill.ids import new_id
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.delivery")

TTL = timedelta(seconds=30)
"""Time to live of the lease of a background duty."""

_RENEW = TTL.total_seconds() / 3
_AGAIN = 5.0  # seconds after an unexpected error
_LONGEST = 5.0  # seconds between two looks, in case a wake-up was lost
_JOIN = 10.0


def pin_of(clock: Clock) -> datetime | None:
    """The time to pass to a store: that of a manual clock, else None for the store's own clock."""
    return clock.now() if isinstance(clock, ManualClock) else None


class LeaseKeeper:
    """A named lease that one process holds while it performs a duty."""

    def __init__(self, store: Store, clock: Clock, name: str, process: str) -> None:
        self._store, self._clock, self.name, self._process = store, clock, name, process
        self._holder: UUID = new_id()
        self._term: int | None = None
        self._active_at: datetime | None = None
        self._lock = threading.Lock()

    @property
    def held(self) -> bool:
        """Whether this process holds the lease, as far as it knows."""
        return self._term is not None

    def take(self) -> bool:
        """Acquire the lease unless this process has it; whether it has it now."""
        with self._lock:
            if self._term is None:
                lease = self._store.acquire(self.name, self._holder, ttl=TTL, now=pin_of(self._clock))
                if lease is not None:
                    self._term = lease.term
            return self._term is not None

    def note(self) -> None:
        """Record that the duty was performed, for the alert about leaders that do nothing."""
        self._active_at = pin_of(self._clock) or self._clock.now()

    def renew(self) -> None:
        """Renew the lease if this process has it."""
        with self._lock:
            if self._term is None:
                return
            tick = None if self._active_at is None else self._active_at.isoformat()
            metadata = {
                "holder": holder_data(self._process, ()),
                "duties": {self.name: {"last_tick": tick}},
            }
            renewed = self._store.renew(
                self.name, self._holder, self._term, ttl=TTL, metadata=metadata, now=pin_of(self._clock)
            )
            if not renewed:
                self._term = None

    def close(self) -> None:
        """Release the lease."""
        with self._lock:
            term, self._term = self._term, None
            if term is not None:
                with suppress(StoreError):
                    self._store.release(self.name, self._holder, term)


class BackgroundDuty(Protocol):
    """A duty that ``step`` performs once."""

    keeper: LeaseKeeper

    def step(self, *, force: bool = False) -> float:
        """Perform what is due, or everything with ``force``; return the seconds until the next step."""
        ...


class BackgroundThread:
    """Performs background duties on a thread of its own, and renews their leases on another one."""

    def __init__(self, duties: Sequence[BackgroundDuty]) -> None:
        self._duties = duties
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._woken = False
        self._thread = threading.Thread(target=self._loop, name="tidemill-background", daemon=True)
        self._renewals = threading.Thread(target=self._renew, name="tidemill-background-leases", daemon=True)

    def start(self) -> None:
        """Start the threads."""
        self._thread.start()
        self._renewals.start()

    def heard(self, topics: frozenset[str]) -> None:
        """Look at once if an event was recorded; the listener of a worker calls it."""
        if TOPIC in topics:
            with self._changed:
                self._woken = True
                self._changed.notify_all()

    def close(self) -> None:
        """End after the current event. Closing twice is harmless."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        for thread in (self._thread, self._renewals):
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_JOIN)
        for duty in self._duties:
            duty.keeper.close()

    def once(self) -> None:
        """Perform every duty once in this thread, without the threads; for a worker that runs on a timer."""
        for duty in self._duties:
            perform(duty, force=True)
            duty.keeper.close()

    def _loop(self) -> None:
        while not self._closing.is_set():
            wait = min([perform(duty) for duty in self._duties], default=_LONGEST)
            with self._changed:
                self._changed.wait_for(lambda: self._woken or self._closing.is_set(), min(wait, _LONGEST))
                self._woken = False

    def _renew(self) -> None:
        while not self._closing.wait(_RENEW):
            for duty in self._duties:
                try:
                    duty.keeper.renew()
                except StoreError as error:
                    _log.warning("cannot renew the lease %s: %s", duty.keeper.name, error)


def perform(duty: BackgroundDuty, *, force: bool = False) -> float:
    """One step of a duty; an error is logged. Returns the seconds until the next one."""
    try:
        return duty.step(force=force)
    except StoreError as error:
        _log.warning("background duty %s is repeated: %s", duty.keeper.name, error)
    except Exception:  # noqa: BLE001  (the next step may succeed, and the worker must continue)
        _log.exception("unexpected error in background duty %s; it is repeated", duty.keeper.name)
    return _AGAIN


def perform_all(duties: Iterable[BackgroundDuty]) -> None:
    """Perform duties once, now, in this thread, and release their leases; for commands, ticks and tests."""
    for duty in duties:
        try:
            duty.step(force=True)
        finally:
            duty.keeper.close()
