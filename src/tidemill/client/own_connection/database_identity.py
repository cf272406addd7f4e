"""Check that a connection leads to the store's own database.

The connection and the store both report their installation id and location, which must match.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from tidemill.errors import UsageError
from tidemill.stores.sql.store import SqlStore

Identity = tuple[str, str]

_KNOWN: WeakKeyDictionary[object, dict[str, Identity]] = WeakKeyDictionary()
"""Cached identities of physical connections, by schema. A connection never changes its database."""


def remembered(key: object, schema: str) -> Identity | None:
    """Return the cached identity of this connection."""
    try:
        return _KNOWN.get(key, {}).get(schema)
    except TypeError:  # the object does not support weak references
        return None


def remember(key: object, schema: str, identity: Identity) -> None:
    """Cache an identity for the lifetime of the connection, if it supports weak references."""
    with suppress(TypeError):
        _KNOWN.setdefault(key, {})[schema] = identity


def same_file(one: str, other: str) -> bool:
    """Whether two paths lead to the same file."""
    try:
        return one == other or Path(one).samefile(other)
    except OSError:
        return False


def elsewhere(store: SqlStore, place: str) -> UsageError:
    """Return the error for a connection to another database."""
    where = f" (it is to {place})" if place else ""
    return UsageError(
        f"the connection is to another database than the store {store.url}{where}; enqueue without connection=, or give a"
        " connection to the store's own database"
    )
