"""Durable subscriptions that publish events to RabbitMQ or to a Redis stream."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tidemill.delivery.batch_handler import BatchHandler
from tidemill.domain.event_messages import EventMessage, event_message
from tidemill.errors import BadSettings, StoreUnavailable
from tidemill.loop_thread import LoopThread
from tidemill.rabbitmq import SCHEMES, check_broker_url, connect, split_options
from tidemill.stores.bus.address import is_redis, redis_url, without_password
from tidemill.tasks.events import Event

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange

EXCHANGE = STREAM = "tidemill.events"
"""Default name of the exchange and of the stream."""

MOST_ENTRIES = 100_000
"""About how many entries a stream keeps by default."""

_PATIENCE = 30.0


def message_of(event: Event) -> EventMessage:
    """The message about an event."""
    return event_message(
        event.seq or 0,
        event.name,
        event.at,
        event.job_id,
        event.task,
        event.tenant,
        event.state,
        event.data,
    )


class RabbitEvents(BatchHandler):
    """Publishes to a topic exchange, and waits until RabbitMQ has confirmed each message."""

    def __init__(self, url: str) -> None:
        self._url, own = split_options(check_broker_url("to", url), "exchange")
        self._name = own.get("exchange") or EXCHANGE
        self.shown = f"{without_password(url)} exchange {self._name}"
        self._loop = LoopThread("tidemill-rabbitmq")
        self._connection: AbstractConnection | None = None
        self._exchange: AbstractExchange | None = None

    def handle(self, events: Sequence[Event]) -> Mapping[int, str]:
        try:
            return self._loop.wait(self._publish(events), _PATIENCE)
        except Exception as error:  # noqa: BLE001  (the library raises errors of many kinds)
            with contextlib.suppress(Exception):
                self._loop.wait(self._disconnect(), _PATIENCE)
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        words = str(error) or type(error).__name__
        raise StoreUnavailable(f"events cannot be published to {self.shown}: {words}") from error

    async def _publish(self, events: Sequence[Event]) -> Mapping[int, str]:
        from aio_pika.exceptions import DeliveryError

        exchange = await self._opened()
        sent = [
            exchange.publish(_amqp(message := message_of(event)), message.routing_key) for event in events
        ]
        results = await asyncio.gather(*sent, return_exceptions=True)
        errors: dict[int, str] = {}
        for event, result in zip(events, results, strict=True):
            if isinstance(result, DeliveryError):
                errors[event.seq or 0] = "RabbitMQ refused the message"
            elif isinstance(result, BaseException):
                raise result
        return errors

    async def _opened(self) -> AbstractExchange:
        from aio_pika import ExchangeType

        if self._exchange is None or self._connection is None or self._connection.is_closed:
            await self._disconnect()
            self._connection = await connect(self._url, "tidemill events")
            channel: AbstractChannel = await self._connection.channel(publisher_confirms=True)
            self._exchange = await channel.declare_exchange(self._name, ExchangeType.TOPIC, durable=True)
        return self._exchange

    async def _disconnect(self) -> None:
        connection, self._connection, self._exchange = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close()

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._loop.wait(self._disconnect(), _PATIENCE)
        self._loop.close()


def _amqp(message: EventMessage) -> Any:
    from aio_pika import DeliveryMode, Message

    return Message(
        message.body.encode(),
        content_type="application/json",
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=message.id,
        timestamp=message.at,
        type=message.event,
        app_id="tidemill",
    )


class RedisEvents(BatchHandler):
    """Appends to a stream, of which Redis drops the oldest entries above a length."""

    def __init__(self, url: str) -> None:
        if importlib.util.find_spec("redis") is None:
            raise BadSettings("to: redis:// needs the extra 'redis'; run: pip install 'tidemill[redis]'")
        self._url, own = split_options(url, "stream", "maxlen")
        self._stream, self._most = own.get("stream") or STREAM, _length(own.get("maxlen"))
        self.shown = f"{without_password(url)} stream {self._stream}"
        self._redis: Any = None

    def handle(self, events: Sequence[Event]) -> Mapping[int, str]:
        from redis.exceptions import RedisError

        try:
            pipeline = self._connected().pipeline(transaction=False)
            for event in events:
                pipeline.xadd(self._stream, message_of(event).fields, maxlen=self._most)
            results = pipeline.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"events cannot be published to {self.shown}: {error}") from None
        return {
            event.seq or 0: str(result)
            for event, result in zip(events, results, strict=True)
            if isinstance(result, Exception)
        }

    def _connected(self) -> Any:
        if self._redis is None:
            from redis import Redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry

            # A command whose answer is lost is not repeated here: the event would be in the stream twice for nothing.
            self._redis = Redis.from_url(
                redis_url(self._url),
                socket_connect_timeout=5.0,
                socket_timeout=5.0,
                retry=Retry(NoBackoff(), 0),
            )
        return self._redis

    def close(self) -> None:
        if self._redis is not None:
            self._redis.close()


def _length(text: str | None) -> int:
    if text is None:
        return MOST_ENTRIES
    if not text.isdecimal() or not int(text):
        raise BadSettings(f"to: maxlen is {text!r}; give a number of entries", setting="to")
    return int(text)


def open_publisher(url: object) -> BatchHandler:
    """The publisher at this URL. Nothing is connected yet."""
    if isinstance(url, str):
        if url.partition("://")[0] in SCHEMES:
            return RabbitEvents(url)
        if is_redis(url):
            return RedisEvents(url)
    raise BadSettings(
        "to: give the URL of a RabbitMQ exchange (amqp://host/vhost?exchange=jobs) or of a Redis stream (redis://host/0?stream=jobs)",
        setting="to",
    )
