"""Locks with an expiry, kept by a server other than the database."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tidemill.domain.cluster import Lease
from tidemill.errors import StoreUnavailable

if TYPE_CHECKING:
    from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.store")

DURATION = timedelta(minutes=5)
"""How long a lock lasts if its owner neither releases nor takes it again."""


class LockServer(ABC):
    """Locks by name. They only save work: a lock may be lost, or be given to two owners, and no token fences an owner.

    Every verb raises ``StoreUnavailable`` if the server does not answer.
    """

    url: str  #: without a password

    @abstractmethod
    def take(self, names: Collection[str]) -> frozenset[str]:
        """Take these locks, each for ``DURATION``; returns those that this object owns now. Its own locks are prolonged."""

    @abstractmethod
    def release(self, names: Collection[str]) -> None:
        """Release those of these locks that this object owns."""

    @abstractmethod
    def held(self, now: datetime) -> list[Lease]:
        """All locks of every process, as leases. ``now`` is the store's time, from which the expiry is computed."""

    @abstractmethod
    def drop(self, name: str) -> bool:
        """Release a lock, whichever process holds it; return whether it was held."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""


class LockingStore:
    """The lock server of a store."""

    def locks(self) -> LockServer | None:
        """The lock server that ``locks`` or ``wake`` in the store's URL names; None without one."""
        return None


def leases_and_locks(store: Store) -> list[Lease]:
    """All leases, then the locks that are held now. Without an answer of the lock server, its locks are left out."""
    leases, server = store.leases(), store.locks()
    if server is None:
        return leases
    try:
        return [*leases, *server.held(store.now())]
    except StoreUnavailable as error:
        _log.warning("the list of leases lacks the locks: %s", error)
        return leases
