"""Base class of the store-wide client APIs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import ParamSpec, TypeVar

from tidemill.client.core import Client
from tidemill.errors import StoreError
from tidemill.stores.base import Store

P = ParamSpec("P")
R = TypeVar("R")


class StoreApi:
    """A client API that is not limited to one tenant."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def _store(self) -> Store:
        return self._client.store(None)

    @property
    def _pin(self) -> datetime | None:
        return self._client.pin

    def _now(self) -> datetime:
        """The time of a manual clock if the client has one, else the store's own time; never the local machine's."""
        return self._pin or self._store.now()

    def _tell(self, topics: Iterable[str]) -> None:
        with contextlib.suppress(StoreError):  # a lost notification only causes a delay
            self._store.notify(topics)

    async def _await(self, verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a method in a thread and await it."""
        found: R = await self._client.in_thread(lambda: verb(*args, **kwargs))
        return found
