"""``app.store``, ``app.stores`` and ``app.shards``: the stores of an app."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from tidemill.app_shards import Shards
from tidemill.client.core import Client
from tidemill.stores.base import Store
from tidemill.tasks.ambient import store_scope


class StoresApp:
    """Base class of apps: their stores and shards."""

    _client: Client
    _urls: dict[str, str | None]

    def _bind_shards(self) -> None:
        self.shards = Shards(self._client)

    @property
    def store(self) -> Store:
        """The store that jobs are written to unless a call names another."""
        return self._client.store(None)

    def store_url(self, name: str | None = None) -> str | None:
        """Return the URL a store was opened with, including its password; None if it was given as an object."""
        return self._urls[self._client.placement.concrete(self._client.store_name(name))]

    @property
    def stores(self) -> Mapping[str, Store]:
        """The stores by name."""
        return self._client.stores

    @property
    def live_stores(self) -> tuple[str, ...]:
        """The names of the stores that workers serve by default, the app's default store first.

        Stores named ``archive``, ``archive-…`` or ``archive_…`` are for archived jobs only.
        """
        return self._client.placement.live

    @property
    def store_name(self) -> str:
        """The name of the store that calls address here."""
        return self._client.store_name(None)

    def using_store(self, name: str) -> AbstractContextManager[None]:
        """Use this store inside the block: jobs enqueued there go to it, and other calls address it.

        The choice belongs to the context: it reaches coroutines and ``asyncio.to_thread``, but no new thread.
        """
        return store_scope(self._client.registry, self._client.placement.existing(name))
