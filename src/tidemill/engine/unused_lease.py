"""A mark in the lease of the duties while the workers coordinate without it."""

from __future__ import annotations

import logging
from datetime import timedelta
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.cluster import DUTIES
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

_HOUR = 3600.0


class UnusedLease:
    """Marks the lease of the duties as unused while the workers coordinate without it.

    Without the mark, readers of the lease would take the last leader's figures for the present ones.
    """

    def __init__(self, store: Store, clock: Clock, holder: UUID, mode: str, ttl: timedelta) -> None:
        self._store, self._clock, self._holder, self._mode, self._ttl = store, clock, holder, mode, ttl
        self._next = clock.monotonic()

    def mark(self) -> None:
        """Write the mark, at most once an hour, unless the lease is held or was never used."""
        if self._clock.monotonic() < self._next:
            return
        self._next = self._clock.monotonic() + _HOUR
        try:
            self._mark()
        except Exception as error:  # noqa: BLE001  (a missing mark only misleads a reader; it must not stop the duties)
            _log.warning("cannot mark the lease %s as unused: %s", DUTIES, error)

    def _mark(self) -> None:
        lease = next((lease for lease in self._store.leases() if lease.name == DUTIES), None)
        if lease is None or lease.held(self._store.now()) or lease.unused_by == self._mode:
            return
        taken = self._store.acquire(DUTIES, self._holder, ttl=self._ttl)
        if taken is None:
            return
        lease_data = {"coordination": str(self._mode)}
        self._store.renew(DUTIES, self._holder, taken.term, ttl=self._ttl, metadata=lease_data)
        self._store.release(DUTIES, self._holder, taken.term)
