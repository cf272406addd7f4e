"""Base class of the client APIs, and the async twins of their methods."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from tidemill.errors import StoreError
from tidemill.stores.base import Store

if TYPE_CHECKING:
    from tidemill.client.core import Client

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

TWINS: dict[str, Callable[..., Any]] = {}
"""Every async twin by its qualified name, such as ``Jobs.aget``. A test runs each of them."""


def async_twin(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Return the async version of a method: ``aget = async_twin(get)`` in the body of the class.

    The method runs in a thread of the client, with the caller's tenant and identity. Its object needs the attribute
    ``_client``.
    """
    name = method.__name__

    async def twin(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        # Look the method up, so that the twin of an overridden method calls the override.
        act = functools.partial(getattr(self, name), *args, **kwargs)
        return await self._client.in_thread(act)

    functools.update_wrapper(twin, method)
    owner, _, _ = method.__qualname__.rpartition(".")
    twin.__name__, twin.__qualname__ = f"a{name}", f"{owner}.a{name}"
    twin.__doc__ = f"Async version of ``{name}``."
    TWINS[twin.__qualname__] = twin
    return twin


def in_each_store(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Let a method that changes store-wide state run in every store with tenants, where calls address all shards.

    The answer is that of the first store, which is the home store. A store that does not answer ends the call with its
    error; repeating the call is safe, because a change that was made already changes nothing.
    """

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        clients = self._client.each_store()
        if not clients:
            return method(self, *args, **kwargs)
        answers = [method(type(self)(client), *args, **kwargs) for client in clients]
        return answers[0]

    return call


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
