"""Connection of the wake-up bus to Redis or Valkey: PUBLISH and SUBSCRIBE."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tidemill.stores.bus.connection import PATIENCE, PROBE, BusConnection, Received


class RedisConnection(BusConnection):
    """One connection to publish, and a second one while it is subscribed."""

    def __init__(self, url: str) -> None:
        super().__init__()
        # The client would reconnect without a word, and the messages of that time would be missed unnoticed.
        self._redis = Redis.from_url(
            url,
            socket_connect_timeout=PATIENCE,
            socket_timeout=PATIENCE,
            retry=Retry(NoBackoff(), 0),
            client_name="tidemill",
        )
        self._pubsub: Any = None
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> None:
        info = await self._redis.info("server")
        kind = "Valkey" if "valkey_version" in info else "Redis"
        self.server = f"{kind} {info.get('valkey_version') or info['redis_version']}"

    async def subscribe(self, channel: str, received: Received) -> None:
        self._pubsub = self._redis.pubsub()
        await self._pubsub.subscribe(channel)
        while (message := await self._pubsub.get_message(timeout=PATIENCE)) is None or message[
            "type"
        ] != "subscribe":
            if message is None:
                raise TimeoutError("the server did not confirm the subscription")
        self._reader = asyncio.create_task(self._read(received))

    async def _read(self, received: Received) -> None:
        asked = False
        try:
            while True:
                message = await self._pubsub.get_message(timeout=PATIENCE if asked else PROBE)
                if message is not None:
                    asked = False
                    if message["type"] == "message":
                        received(message["data"])
                elif asked:
                    raise TimeoutError("the server does not answer")
                else:
                    await self._pubsub.ping()
                    asked = True
        except Exception as error:  # noqa: BLE001  (whatever it is, the bus connects again)
            self.lose(error)

    async def publish(self, channel: str, message: bytes) -> None:
        await self._redis.publish(channel, message)

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        with contextlib.suppress(Exception):
            if self._pubsub is not None:
                await self._pubsub.aclose()
        with contextlib.suppress(Exception):
            await self._redis.aclose()
