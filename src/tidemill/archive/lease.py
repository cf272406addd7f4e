"""The lease of the archive: one run at a time per store, and the totals of all runs."""

from __future__ import annotations

import contextlib
import os
import socket
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.archive_totals import (
    LEASE,
    MOST_POLICIES,
    PolicySums,
    RunRecord,
    lease_data,
    read_runs,
    read_sums,
)
from tidemill.domain.cluster import Lease, holder_data
from tidemill.domain.retention import ArchivePolicy
from tidemill.errors import ArchiveRunning, LeaseLost, StoreError
from tidemill.ids import new_id
from tidemill.stores.base import Store

TTL = timedelta(seconds=60)
"""Time to live of the lease; much longer than one batch takes."""

_TRIES = 10


class _Again(Exception):
    """The lease changed hands between two reads."""


class ArchiveLease:
    """The lease of one run. The totals of all runs are its metadata."""

    def __init__(self, store: Store, clock: Clock, pin: datetime | None) -> None:
        self._store, self._clock, self._pin = store, clock, pin
        self._holder: UUID = new_id()
        self._term = 0
        self._began = clock.monotonic()
        self.sums: dict[str, PolicySums] = {}
        self._runs: list[RunRecord] = []

    def take(self) -> None:
        """Acquire the lease and load the totals of earlier runs from it, or raise ``ArchiveRunning``."""
        for _ in range(_TRIES):
            with contextlib.suppress(_Again):
                self._try()
                return
        raise _running()

    def _try(self) -> None:
        """Acquire the lease once, keeping its totals.

        A new term starts with empty metadata, so the totals are read first and written back in the same transaction.
        The term shows whether another holder came in between. In that case the totals may have changed, and the
        transaction is rolled back.
        """
        with self._store.transaction():
            known = found_lease(self._store)
            if known is not None and known.expires_at is not None and known.expires_at > self.now():
                raise _running()
            lease = self._store.acquire(LEASE, self._holder, ttl=TTL, now=self._pin)
            if lease is None:
                raise _running()
            if lease.term != (0 if known is None else known.term) + 1:
                raise _Again
            sums = {} if known is None else read_sums(known.metadata)
            self._runs = [] if known is None else read_runs(known.metadata)
            self._term = lease.term
            self._renew(sums, self.now())
        self.sums = sums

    def of(self, policy: ArchivePolicy) -> PolicySums:
        """Return the totals of a policy."""
        found = self.sums.get(policy.name)
        if found is None:
            if len(self.sums) >= MOST_POLICIES:  # drop the least recently used policy
                del self.sums[min(self.sums, key=lambda name: self.sums[name].last_at or "")]
            found = self.sums[policy.name] = PolicySums(policy.name, policy.tier)
        found.tier = policy.tier
        return found

    def renew(self, changed: PolicySums | None = None) -> None:
        """Extend the lease and write the totals, or raise ``LeaseLost``."""
        sums = self.sums if changed is None else {**self.sums, changed.policy: changed}
        self._renew(sums, self.now())

    def _renew(self, sums: dict[str, PolicySums], at: datetime) -> None:
        metadata = lease_data(sums, at=at, took=self.took(), runs=self._runs)
        metadata["holder"] = holder_data(f"{socket.gethostname()}-{os.getpid()}", ())
        renewed = self._store.renew(
            LEASE, self._holder, self._term, ttl=TTL, metadata=metadata, now=self._pin
        )
        if not renewed:
            raise LeaseLost(
                "the archive lease was released or has expired; jobs archived before that stay archived",
                name=LEASE,
            )

    def give_back(self, record: RunRecord) -> None:
        """Record the run and release the lease. If the store is unavailable, the lease expires by itself."""
        self._runs = [record, *self._runs]
        with contextlib.suppress(StoreError, LeaseLost), self._store.transaction():
            self._renew(self.sums, self.now())
            self._store.release(LEASE, self._holder, self._term)

    def took(self) -> timedelta:
        """Return the time since the run began."""
        return timedelta(seconds=self._clock.monotonic() - self._began)

    def now(self) -> datetime:
        """Return the time of the store, or of a manual clock."""
        return self._pin or self._store.now()


def found_lease(store: Store) -> Lease | None:
    """Return the archive lease of a store; None before its first run."""
    return next((lease for lease in store.leases() if lease.name == LEASE), None)


def _running() -> ArchiveRunning:
    return ArchiveRunning("another archive run is in progress; wait until it has ended", name=LEASE)
