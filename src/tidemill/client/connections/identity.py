"""Whether a connection leads to the store's own database: both sides are asked for the installation and its place."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from weakref import WeakKeyDictionary

from tidemill.errors import UsageError
from tidemill.stores.sql.store import SqlStore

Identity = tuple[str, str]

_KNOWN: WeakKeyDictionary[object, dict[str, Identity]] = WeakKeyDictionary()
"""What physical connections have answered, by schema. A connection never changes its database."""


def remembered(key: object, schema: str) -> Identity | None:
    """What this connection answered before."""
    try:
        return _KNOWN.get(key, {}).get(schema)
    except TypeError:  # it cannot be referred to weakly
        return None


def remember(key: object, schema: str, identity: Identity) -> None:
    """Keep an answer for as long as the connection lives, where that can be done."""
    with suppress(TypeError):
        _KNOWN.setdefault(key, {})[schema] = identity


def same_file(one: str, other: str) -> bool:
    """Whether two paths lead to one file."""
    try:
        return one == other or Path(one).samefile(other)
    except OSError:
        return False


def elsewhere(store: SqlStore, place: str) -> UsageError:
    """The refusal of a connection to somewhere else."""
    where = f" (it is to {place})" if place else ""
    return UsageError(
        f"the connection is to another database than the store {store.url}{where}; enqueue without connection=, or give a"
        " connection to the store's own database"
    )
