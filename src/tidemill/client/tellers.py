"""What the faces of the client share that belong to no tenant: the store, its time, wake-ups, and the way to a thread."""

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


class Teller:
    """A face of the client that speaks of the whole store."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def _store(self) -> Store:
        return self._client.store(None)

    @property
    def _pin(self) -> datetime | None:
        return self._client.pin

    def _now(self) -> datetime:
        """The clock's that is moved by hand, where there is one; else the store's own, whatever this machine's clock says."""
        return self._pin or self._store.now()

    def _tell(self, topics: Iterable[str]) -> None:
        with contextlib.suppress(StoreError):  # a hint that fails has done no harm
            self._store.notify(topics)

    async def _await(self, verb: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """A verb on a thread."""
        found: R = await self._client.in_thread(lambda: verb(*args, **kwargs))
        return found
