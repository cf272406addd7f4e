"""The wire over RabbitMQ: one queue of requests, and a queue for each hand.

A hub acknowledges a request on receipt, so that no delivery limit and no timeout of consumers ever applies. A request that waits longer than
its sender expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue

from tidemill.stores.wire.base import BrokerWire, Transport

EXPIRES = 10_000
"""Milliseconds after which a request that no hub has taken is dropped."""

LARGEST = 64 * 1024 * 1024
"""Bytes of one frame. RabbitMQ refuses messages of more than 128 MiB, and by default since version 4 of more than 16 MiB."""

_PREFETCH = 2_000


class AmqpWire(BrokerWire):
    """A wire at ``amqp://HOST[,HOST…]/NAME``."""

    def __init__(self, url: str, servers: list[str], name: str, *, quorum: bool = False) -> None:
        super().__init__(url)
        self._servers, self._prefix, self._quorum = servers, f"tidemill.{name}.", quorum
        self._next = 0

    async def _open(self, addresses: list[str], received: Callable[[bytes], None]) -> Transport:
        # Each try takes the next server.
        server = self._servers[self._next % len(self._servers)]
        self._next += 1
        # Not the robust connection of aio-pika: this wire replaces a lost connection as a whole.
        connection = await aio_pika.connect(server, heartbeat=10)
        try:
            channel = await connection.channel(publisher_confirms=False)
            await channel.set_qos(prefetch_count=_PREFETCH)

            async def take(message: AbstractIncomingMessage) -> None:
                received(message.body)

            consumers = {address: await self._receive(channel, address, take) for address in addresses}
        except BaseException:
            await connection.close()
            raise
        return _AmqpTransport(connection, channel, self._prefix, consumers)

    async def _receive(self, channel: AbstractChannel, address: str, take: Any) -> tuple[AbstractQueue, str]:
        if address == "hub":
            arguments: dict[str, Any] = {"x-message-ttl": EXPIRES}
            if self._quorum:
                arguments["x-queue-type"] = "quorum"
            queue = await channel.declare_queue(self._prefix + address, durable=True, arguments=arguments)
        elif address == "hands":
            exchange = await channel.declare_exchange(
                self._prefix + address, aio_pika.ExchangeType.FANOUT, durable=True
            )
            queue = await channel.declare_queue(exclusive=True, auto_delete=True)
            await queue.bind(exchange)
        else:
            queue = await channel.declare_queue(self._prefix + address, exclusive=True, auto_delete=True)
        return queue, await queue.consume(take, no_ack=True)


class _AmqpTransport:
    """One connection to RabbitMQ."""

    largest = LARGEST

    def __init__(
        self,
        connection: AbstractConnection,
        channel: AbstractChannel,
        prefix: str,
        consumers: dict[str, tuple[AbstractQueue, str]],
    ) -> None:
        self._connection, self._channel, self._prefix = connection, channel, prefix
        self._consumers = consumers
        self._lost = asyncio.Event()
        for part in (connection.close_callbacks, channel.close_callbacks):
            part.add(lambda *_: self._lost.set())

    async def publish(self, to: str, frame: bytes) -> None:
        message = aio_pika.Message(frame, delivery_mode=aio_pika.DeliveryMode.NOT_PERSISTENT)
        if to == "hands":
            exchange = await self._channel.get_exchange(self._prefix + to, ensure=False)
            await exchange.publish(message, routing_key="", mandatory=False)
        else:
            await self._channel.default_exchange.publish(
                message, routing_key=self._prefix + to, mandatory=False
            )

    async def leave(self) -> None:
        queue, tag = self._consumers["hub"]
        await queue.cancel(tag)

    async def wait_lost(self) -> None:
        await self._lost.wait()

    async def close(self) -> None:
        await self._connection.close()


def amqp_servers(url: str, virtual_host: str | None) -> list[str]:
    """The address of each server of a wire's URL, with its user and password and this virtual host.

    >>> amqp_servers("amqp://ann:s@one,two:5673/shop", None)
    ['amqp://ann:s@one/', 'amqp://ann:s@two:5673/']
    >>> amqp_servers("amqps://one/shop", "jobs")
    ['amqps://one/jobs']
    """
    scheme, _, rest = url.partition("://")
    user, at, hosts = rest.partition("/")[0].rpartition("@")
    path = "" if virtual_host is None else virtual_host
    return [f"{scheme}://{user}{at}{host}/{path}" for host in hosts.split(",")]
