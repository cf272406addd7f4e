"""Keys, hubs and hands of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

from tidemill.app import App
from tidemill.clock import SystemClock
from tidemill.domain.access import (
    ID_BYTES,
    SECRET_BYTES,
    Key,
    Role,
    key_id,
    read_secret,
    secret_hash,
    secret_text,
)
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.permissions import Access, Grant
from tidemill.engine.hand.hand import Hand
from tidemill.engine.hub.server import Hub
from tidemill.engine.worker_settings import read_settings
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.hub.store import HubStore
from tidemill.stores.wire.open import open_wire


def a_key(store: Store, *grants: str, tenant: str = ALL_TENANTS, role: Role = Role.ADMIN) -> str:
    """Store a key for hands without an audit entry; return its secret."""
    dice = new_id().bytes + new_id().bytes
    id = key_id(dice[-ID_BYTES:])
    secret = secret_text(id, dice[:SECRET_BYTES])
    parts = read_secret(secret)
    assert parts is not None
    access = Access(tuple(map(Grant.parse, grants or ("jobs.work",))))
    store.put_keys([Key(id, "hand", role, tenant, secret_hash(parts.secret), access=access)])
    return secret


@contextmanager
def a_hub(store: Store, url: str) -> Iterator[Hub]:
    """A hub of this store."""
    wire = open_wire(url)
    hub = Hub(store, SystemClock(), [wire])
    hub.start()
    wire.wait_connected(10)
    try:
        yield hub
    finally:
        hub.close()


@contextmanager
def a_far_store(url: str, key: str, *, timeout: float = 10.0) -> Iterator[HubStore]:
    """The store of a hand."""
    store = HubStore(open_wire(url), key, timeout=timeout)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def a_hand(app: App, url: str, key: str, **settings: object) -> Iterator[Hand]:
    """A hand with the tasks of this app, which may use another store."""
    with ExitStack() as stack:
        far = stack.enter_context(a_far_store(url, key))
        given = {"concurrency": 4, "threads": 2, "children": 0, "grace": 5.0, **settings}
        hand = Hand(
            cast("Store", far),
            app.registry,
            SystemClock(),
            read_settings(given),
            hooks=app.hooks,
            events=app.events,
        )
        hand.start()
        stack.callback(hand.stop)
        yield hand
