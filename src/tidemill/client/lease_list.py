"""The leases of a store together with the locks of its lock server."""

from __future__ import annotations

import logging

from tidemill.domain.cluster import Lease
from tidemill.errors import StoreUnavailable
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.client")


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
