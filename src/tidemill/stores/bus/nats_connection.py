"""Connection of the wake-up bus to NATS: core publish and subscribe."""

from __future__ import annotations

import contextlib
from urllib.parse import urlsplit

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from tidemill.stores.bus.connection import PATIENCE, PROBE, BusConnection, Received


def servers_of(url: str) -> list[str]:
    """One URL for each server of a URL with several hosts.

    >>> servers_of("nats://ann:secret@one,two:4223")
    ['nats://ann:secret@one', 'nats://ann:secret@two:4223']
    """
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    return [f"{parts.scheme}://{user}{at}{host}" for host in hosts.split(",") if host]


class NatsConnection(BusConnection):
    """One connection to the first server of the URL that answers."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._client: Client | None = None

    async def open(self) -> None:
        # The bus connects again by itself: only then does it know that messages were missed.
        self._client = await nats.connect(
            servers_of(self._url),
            name="tidemill",
            allow_reconnect=False,
            connect_timeout=int(PATIENCE),
            ping_interval=int(PROBE),
            max_outstanding_pings=1,
            error_cb=self._failed,
            closed_cb=self._closed,
        )
        self.server = f"NATS {self._client.connected_server_version}"

    async def _failed(self, error: Exception) -> None:
        self.lose(error)

    async def _closed(self) -> None:
        self.lose(ConnectionError("the connection was closed"))

    async def subscribe(self, channel: str, received: Received) -> None:
        assert self._client is not None

        async def take(message: Msg) -> None:
            received(message.data)

        await self._client.subscribe(channel, cb=take)
        await self._client.flush(int(PATIENCE))

    async def publish(self, channel: str, message: bytes) -> None:
        assert self._client is not None
        await self._client.publish(channel, message)
        await self._client.flush(int(PATIENCE))

    async def close(self) -> None:
        if self._client is not None:
            with contextlib.suppress(Exception):
                await self._client.close()
