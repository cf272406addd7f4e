"""One connection of the wake-up bus to its server."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

Received = Callable[[bytes], None]

PATIENCE = 2.0
"""Seconds that a server has for an answer."""

PROBE = 5.0
"""Seconds between two questions whether the server still answers."""


class BusConnection(ABC):
    """A connection that carries messages of one channel. It does not reconnect; all calls happen on one event loop."""

    server: str = ""  #: the server's kind and version, once it is open

    def __init__(self) -> None:
        self._lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    @abstractmethod
    async def open(self) -> None:
        """Connect, or raise an error."""

    @abstractmethod
    async def subscribe(self, channel: str, received: Received) -> None:
        """Call ``received`` with every message of the channel from now on; returns when the server has confirmed it."""

    @abstractmethod
    async def publish(self, channel: str, message: bytes) -> None:
        """Send a message; returns when the server has it."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect, also after a failure."""

    def lose(self, error: Exception) -> None:
        """Record that the connection has failed."""
        if not self._lost.done():
            self._lost.set_result(error)

    async def lost(self) -> Exception:
        """Wait until the connection fails; returns why."""
        return await asyncio.shield(self._lost)
