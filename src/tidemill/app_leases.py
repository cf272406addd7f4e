"""Leases of an app: a block that one process at a time runs, with a fencing token."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tidemill.domain.bounds import check_name
from tidemill.domain.cluster import app_lease_name, holder_data, holder_of
from tidemill.domain.durations import Duration, read_duration
from tidemill.engine.node import process_name
from tidemill.errors import BadSettings, LeaseHeld, LeaseLost, StoreError, UsageError
from tidemill.ids import new_id

if TYPE_CHECKING:
    from tidemill.client.core import Client

_log = logging.getLogger("tidemill.client")

SHORTEST = timedelta(seconds=1)
_SURE = 3 / 4  # of its length, after which a lease that was not renewed counts as lost
_PAUSE = 1.0  # longest seconds between two attempts to acquire a lease


class AppLease:
    """A lease that this process holds inside the ``with`` block, which a thread renews.

    ``term`` is the fencing token: it rises with each holder, so a system that remembers the highest one can refuse the writes of
    a former holder. A lease is lost if the store gave it to another process, or was not reached for three quarters of its length:
    then ``lost`` is true, ``check`` raises ``LeaseLost``, ``on_lost`` was called, and so does the end of the block.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        *,
        ttl: Duration,
        wait: Duration,
        on_lost: Callable[[], None] | None,
    ) -> None:
        check_name("lease", name)
        self.name = name
        self.term = 0  #: the fencing token, once the lease is held
        self._client, self._store, self._clock = client, client.store(None), client.clock
        self._ttl, self._wait = read_duration("ttl", ttl), read_duration("wait", wait)
        if self._ttl < SHORTEST:
            raise BadSettings(f"ttl is {self._ttl}; give at least 1 second", setting="ttl")
        self._on_lost, self._process = on_lost, process_name()
        self._stored, self._holder = app_lease_name(name), new_id()
        self._random = Random()  # noqa: S311  (spreads load, keeps no secret)
        self._sent = 0.0
        self._lost, self._end = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def lost(self) -> bool:
        """Whether the lease is lost, and another process may hold it."""
        return self._lost.is_set() or self._clock.monotonic() >= self._sent + self._seconds * _SURE

    def check(self) -> None:
        """Raise ``LeaseLost`` if the lease is lost. Call it before each step with an effect outside."""
        if self.lost:
            raise LeaseLost(
                f"lease {self.name!r} of term {self.term} is lost; stop this work", name=self.name
            )

    @property
    def _seconds(self) -> float:
        return self._ttl.total_seconds()

    # Acquiring and releasing -------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise UsageError(f"lease {self.name!r} was used already; call app.lease again")
        until = self._clock.monotonic() + self._wait.total_seconds()
        while not self._acquire():
            left = until - self._clock.monotonic()
            if left <= 0:
                raise LeaseHeld(self._held_words(), name=self.name)
            self._end.wait(min(left, self._random.uniform(_PAUSE / 4, _PAUSE)))
        self._thread = threading.Thread(target=self._keep, name=f"tidemill-lease-{self.name}", daemon=True)
        self._thread.start()
        return self

    def _acquire(self) -> bool:
        sent = self._clock.monotonic()
        lease = self._store.acquire(self._stored, self._holder, ttl=self._ttl, now=self._client.pin)
        if lease is None:
            return False
        self.term, self._sent = lease.term, sent
        return self._renew()  # records the holder

    def _renew(self) -> bool:
        sent = self._clock.monotonic()
        data = {"holder": holder_data(self._process, ())}
        kept = self._store.renew(
            self._stored, self._holder, self.term, ttl=self._ttl, metadata=data, now=self._client.pin
        )
        if kept:
            self._sent = sent
        return kept

    def _held_words(self) -> str:
        lease = next((lease for lease in self._store.leases() if lease.name == self._stored), None)
        holder = None if lease is None else holder_of(lease, ())
        by = "another process" if holder is None or holder.name is None else holder.name
        return f"lease {self.name!r} is held by {by}; wait for it with app.lease({self.name!r}, wait=…)"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost = self.lost
        self._end.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        with contextlib.suppress(StoreError):  # it expires
            self._store.release(self._stored, self._holder, self.term)
        if lost and error is None:
            raise LeaseLost(
                f"lease {self.name!r} of term {self.term} was lost during the block; another process may have run it too",
                name=self.name,
            )

    async def __aenter__(self) -> Self:
        await self._client.in_thread(self.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.in_thread(self.__exit__, kind, error, trace)

    # Renewing ----------------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        pause = self._seconds / 4
        while not self._end.wait(pause):
            try:
                kept, pause = self._renew(), self._seconds / 4
            except StoreError as error:
                _log.warning("cannot renew lease %s; retrying: %s", self.name, error)
                kept, pause = True, self._seconds / 16
            if not kept or self.lost:
                self._lose()
                return

    def _lose(self) -> None:
        self._lost.set()
        _log.error("lease %s of term %d is lost", self.name, self.term)
        if self._on_lost is not None:
            try:
                self._on_lost()
            except Exception:  # noqa: BLE001  (a function of the user must not end the thread)
                _log.exception("the on_lost function of lease %s failed", self.name)


class LeaseApp:
    """Base class of apps: ``lease``."""

    _client: Client

    def lease(
        self,
        name: str,
        *,
        ttl: Duration = timedelta(seconds=30),
        wait: Duration = timedelta(0),
        on_lost: Callable[[], None] | None = None,
    ) -> AppLease:
        """Return a lease for a ``with`` or ``async with`` block that one process at a time runs.

        Raises ``LeaseHeld`` if another process still has it after ``wait``. The lease is renewed in the background; if its process
        dies, it is free again after ``ttl``. ``on_lost`` is called on a thread if the lease is lost.
        """
        return AppLease(self._client, name, ttl=ttl, wait=wait, on_lost=on_lost)
