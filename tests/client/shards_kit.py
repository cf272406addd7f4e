"""An app with a home store and two shards, on each kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.grounds import url_of

from tidemill import App
from tidemill.errors import StoreUnavailable
from tidemill.shards import move
from tidemill.stores.base import Store

SHARDS = ("eu", "us")


def urls_of(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    """The URLs of a home store and its shards: three files, or three schemas of one database."""
    names = ("home", *SHARDS)
    if kind == "memory":
        return dict.fromkeys(names, "memory://")
    if kind == "sqlite":
        return {name: f"sqlite:///{tmp_path / name}.db" for name in names}
    url = url_of(kind, tmp_path, request)
    sign = "&" if "?" in url else "?"
    return {name: f"{url}{sign}schema={name}" for name in names}


def sharded_app(urls: dict[str, str], **settings: Any) -> App:
    """An app whose tenants are placed in the shard that their name begins with."""
    settings.setdefault("place", lambda tenant: tenant.partition("-")[0])
    return App(urls["home"], shards={name: urls[name] for name in SHARDS}, migrate=True, **settings)


def drain(app: App) -> None:
    """Run the jobs of all shards."""
    for name in app.live_stores:
        app.at_store(name).testing().drain()


@contextmanager
def unsettled() -> Iterator[None]:
    """Let moves of tenants inside the block not wait for clients of other processes, of which there are none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(move, "SETTLED", 0.0)
        patch.setattr(move, "_LOOK", 0.01)
        yield


@contextmanager
def away(app: App, name: str) -> Iterator[None]:
    """Let every verb of a store fail inside the block, as if its database were away."""
    stores: dict[str, Store] = app.stores  # type: ignore[assignment]
    store = stores[name]
    stores[name] = _Away(store)  # type: ignore[assignment]
    try:
        yield
    finally:
        stores[name] = store


class _Away:
    """A store that does not answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.url, self.subscriptions, self.blob_url = store.url, store.subscriptions, store.blob_url

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def fail(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable("the database does not answer")

        return self._store.close if name == "close" else fail
