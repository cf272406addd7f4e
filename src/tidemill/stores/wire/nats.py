"""The wire over NATS: subjects without storage, and the hubs in one queue group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from tidemill.stores.wire.base import BrokerWire, Transport

if TYPE_CHECKING:
    from nats.aio.subscription import Subscription

_GROUP = "hubs"
_PENDING = -1  # no limit of messages or bytes in the client: the hub itself limits what waits
_SPARE = 1024  # bytes of a message that are not the payload


class NatsWire(BrokerWire):
    """A wire at ``nats://HOST[,HOST…]/NAME``."""

    def __init__(self, url: str, servers: list[str], name: str) -> None:
        super().__init__(url)
        self._servers, self._prefix, self._next = servers, f"tidemill.{name}.", 0

    async def _open(self, addresses: list[str], received: Callable[[bytes], None]) -> Transport:
        lost, opened = asyncio.Event(), asyncio.Event()
        # Each try takes the next server.
        server = self._servers[self._next % len(self._servers)]
        self._next += 1

        async def note_loss() -> None:
            lost.set()

        async def note_error(error: Exception) -> None:
            # The client would try again until its time is up. Later errors close the connection, which is noted there.
            if not opened.is_set():
                raise error

        async def take(message: Msg) -> None:
            received(message.data)

        # The wire opens a new connection itself, so that nothing waits in the client while there is none.
        client = await nats.connect(
            servers=[server],
            allow_reconnect=False,
            connect_timeout=2,
            ping_interval=5,
            max_outstanding_pings=2,
            disconnected_cb=note_loss,
            closed_cb=note_loss,
            error_cb=note_error,
        )
        opened.set()
        subscriptions = {address: await self._subscribe(client, address, take) for address in addresses}
        await client.flush()
        return _NatsTransport(client, self._prefix, lost, subscriptions)

    async def _subscribe(
        self, client: Client, address: str, take: Callable[[Msg], asyncio.Future[None]] | object
    ) -> Subscription:
        queue = _GROUP if address == "hub" else ""
        return await client.subscribe(
            self._prefix + address,
            queue=queue,
            cb=take,  # type: ignore[arg-type]
            pending_msgs_limit=_PENDING,
            pending_bytes_limit=_PENDING,
        )


class _NatsTransport:
    """One connection to NATS."""

    def __init__(
        self, client: Client, prefix: str, lost: asyncio.Event, subscriptions: dict[str, Subscription]
    ) -> None:
        self._client, self._prefix, self._lost = client, prefix, lost
        self._subscriptions = subscriptions
        self.largest = client.max_payload - _SPARE

    async def publish(self, to: str, frame: bytes) -> None:
        await self._client.publish(self._prefix + to, frame)

    async def leave(self) -> None:
        # Draining takes what has arrived, and ends the subscription.
        await self._subscriptions["hub"].drain()  # type: ignore[no-untyped-call]

    async def wait_lost(self) -> None:
        await self._lost.wait()

    async def close(self) -> None:
        await self._client.close()


def nats_servers(url: str) -> list[str]:
    """The address of each server of a wire's URL, all with its user and password.

    >>> nats_servers("nats://ann:s@one,two:4223/shop")
    ['nats://ann:s@one', 'nats://ann:s@two:4223']
    """
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    return [urlunsplit((parts.scheme, f"{user}{at}{host}", "", "", "")) for host in hosts.split(",")]
