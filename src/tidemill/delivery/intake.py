"""Intake: messages of RabbitMQ queues that become jobs, each exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidemill.domain.bounds import check_text
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.job import UniqueHold
from tidemill.domain.unique import Unique
from tidemill.errors import BadSettings, QueueFull, StoreError, TidemillError
from tidemill.rabbitmq import PATIENCE, check_broker_url, connect
from tidemill.stores.bus.address import without_password
from tidemill.tasks.options import TaskOptions

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue

_log = logging.getLogger("tidemill.intake")

REMEMBERED = timedelta(days=7)
"""How long the id of a message is remembered by default, so that a repeated delivery enqueues nothing."""

PREFETCH = 100
"""Messages that RabbitMQ delivers before the first of them is acknowledged."""

_MOST_PREFETCH = 10_000
_FIRST, _LONGEST = 0.5, 5.0  # seconds between two attempts
_FAILURES = 5  # of a hook or mapping function, after which the message counts as poison
_LONGEST_REASON = 500
_LONGEST_ID = 200
_TRACEPARENT = 55  # characters
_REASON, _QUEUE = "x-tidemill-reason", "x-tidemill-queue"


class IntakeMessage(NamedTuple):
    """A message of a queue, as a function that returns the arguments of its job receives it."""

    id: str
    queue: str
    body: bytes
    headers: Mapping[str, object]
    content_type: str | None
    correlation_id: str | None
    sent_at: datetime | None

    def json(self) -> Any:
        """The body as JSON data."""
        return json.loads(self.body)


Arguments = Callable[[IntakeMessage], Mapping[str, Any]]


class IntakeTask(Protocol):
    """The task of an intake, as the client binds it to its app."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> TaskOptions: ...

    @property
    def using(self) -> Callable[..., Any]:
        """Returns a copy with other options, which has ``aenqueue``."""
        ...


class PoisonMessage(Exception):
    """A message that can never become a job; the text says why."""


def arguments_of(message: IntakeMessage) -> Mapping[str, Any]:
    """Read the body as a JSON object with the arguments of the task."""
    try:
        arguments = message.json()
    except (ValueError, RecursionError) as error:
        raise PoisonMessage(f"the body is not JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise PoisonMessage("the body is not a JSON object with the arguments of the task")
    return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageKey(Unique):
    """A uniqueness rule with the id of a message as its key."""

    key: str = ""

    def hold(self, task: str, args: Mapping[str, object]) -> UniqueHold:
        """Return the same key whatever the arguments are."""
        return UniqueHold(f"intake:{self.key}", window=self.within)


@dataclass(frozen=True, slots=True)
class IntakeRule:
    """Which queue is read, and what its messages become."""

    queue: str
    task: IntakeTask
    url: str
    dead_letters: str
    prefetch: int
    remember: timedelta
    arguments: Arguments
    id_header: str | None

    @property
    def shown(self) -> str:
        """The queue and its broker, without a password."""
        return f"{self.queue} at {without_password(self.url)}"

    def key(self, id: str) -> MessageKey:
        """The uniqueness of the job of a message."""
        digest = hashlib.sha256(f"{self.queue}\0{id}".encode()).hexdigest()
        return MessageKey(key=digest[:48], within=self.remember)


def intake_rule(
    queue: str,
    task: IntakeTask,
    *,
    broker: str,
    dead_letters: str | None,
    prefetch: int,
    remember: Duration,
    arguments: Arguments | None,
    id_header: str | None,
) -> IntakeRule:
    """Validate a declaration."""
    for name, text in (("queue", queue), ("dead_letters", dead_letters), ("id_header", id_header)):
        check_text(name, text)
    if not queue:
        raise BadSettings("queue is empty; give the name of a queue of RabbitMQ", setting="queue")
    if not 1 <= prefetch <= _MOST_PREFETCH:
        raise BadSettings(
            f"prefetch is {prefetch!r}; give a number from 1 to {_MOST_PREFETCH:,}", setting="prefetch"
        )
    if task.options.unique is not None:
        raise BadSettings(
            f"task {task.name} has unique=; a job has one unique key, and intake uses the id of the message"
        )
    check_broker_url("broker", broker)
    window = read_duration("remember", remember)
    if window <= timedelta(0):
        raise BadSettings(f"remember is {window}; give a duration longer than zero", setting="remember")
    return IntakeRule(
        queue,
        task,
        broker,
        dead_letters or f"{queue}.dead",
        prefetch,
        window,
        arguments or arguments_of,
        id_header,
    )


class QueueReader:
    """Reads one queue. A message is acknowledged after its job is committed, so a crash in between only delivers it again."""

    def __init__(self, rule: IntakeRule) -> None:
        self._rule = rule
        self._random = Random()  # noqa: S311  (spreads load, keeps no secret)
        self._tasks: set[asyncio.Task[None]] = set()
        self._away = False
        self._failed: asyncio.Future[BaseException] | None = None
        self.accepted = self.refused = 0  #: messages that became jobs, and dead letters

    async def run(self, stopping: asyncio.Event) -> None:
        """Read until ``stopping`` is set; connect again after every failure."""
        self._stopping = stopping
        pause = _FIRST
        while not stopping.is_set():
            accepted = self.accepted
            try:
                await self._read()
            except Exception as error:  # noqa: BLE001  (the library raises errors of many kinds)
                self._complain(error)
            pause = _FIRST if self.accepted > accepted else min(2 * pause, _LONGEST)
            await self._pause(pause)

    def _complain(self, error: BaseException) -> None:
        if not self._away:
            _log.warning("queue %s cannot be read; retrying: %s", self._rule.shown, _words(error))
        self._away = True

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), self._random.uniform(seconds / 2, seconds))

    async def _read(self) -> None:
        """Read until ``stopping`` is set or the connection fails."""
        connection = await connect(self._rule.url, f"tidemill intake {self._rule.queue}")
        failed = self._failed = asyncio.get_running_loop().create_future()
        connection.close_callbacks.add(lambda *given: _set(failed, given))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await _declare(await connection.channel(), self._rule.dead_letters)
            channel = await connection.channel(publisher_confirms=True)
            channel.close_callbacks.add(lambda *given: _set(failed, given))
            await channel.set_qos(prefetch_count=self._rule.prefetch)
            queue: AbstractQueue = await channel.get_queue(self._rule.queue)
            tag = await queue.consume(partial(self._begin, channel))
            _log.info("queue %s is read", self._rule.shown)
            self._away = False
            await asyncio.wait({failed, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                raise failed.result()
            async with asyncio.timeout(PATIENCE):
                await queue.cancel(tag)
        finally:
            stopped.cancel()
            # Never cancelled: an enqueue ends by itself, and the jobs of other messages share its commit.
            await asyncio.gather(*self._tasks, return_exceptions=True)
            with contextlib.suppress(Exception):
                async with asyncio.timeout(PATIENCE):
                    await connection.close()

    async def _begin(self, channel: AbstractChannel, message: AbstractIncomingMessage) -> None:
        task = asyncio.ensure_future(self._take(channel, message))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self._failed is not None:
            _set(self._failed, (error,))

    async def _take(self, channel: AbstractChannel, message: AbstractIncomingMessage) -> None:
        """Enqueue the job of a message and acknowledge it; unanswered messages are delivered again after a failure."""
        try:
            await self._enqueue(_message_of(message, self._rule))
        except PoisonMessage as poison:
            await self._bury(channel, message, str(poison))
            self.refused += 1
        else:
            self.accepted += 1
        await message.ack()

    async def _enqueue(self, message: IntakeMessage) -> None:
        failures, pause = 0, _FIRST
        while True:
            try:
                arguments = self._rule.arguments(message)
                if not isinstance(arguments, Mapping):
                    raise PoisonMessage("the function for the arguments returned no mapping")
                await self._rule.task.using(**_options(message, self._rule)).aenqueue(**arguments)
            except (StoreError, QueueFull) as error:
                # The message is sound: it waits until the store takes it, and the prefetch holds back the others.
                _log.warning("message %s of queue %s waits: %s", message.id, message.queue, error)
            except PoisonMessage:
                raise
            except TidemillError as error:
                raise PoisonMessage(f"{error.code}: {error.message}") from error
            except Exception as error:
                failures += 1
                if failures >= _FAILURES:
                    raise PoisonMessage(
                        f"failed {failures} times: {type(error).__name__}: {error}"
                    ) from error
                _log.exception("message %s of queue %s failed; retrying", message.id, message.queue)
            else:
                return
            if self._stopping.is_set() or self._failed is None or self._failed.done():
                raise ConnectionError("the message is left to the next reader")
            await self._pause(pause)
            pause = min(2 * pause, _LONGEST)

    async def _bury(self, channel: AbstractChannel, message: AbstractIncomingMessage, reason: str) -> None:
        """Copy a message to the queue of dead letters, and wait until RabbitMQ has it."""
        from aio_pika import DeliveryMode, Message

        reason = reason[:_LONGEST_REASON]
        _log.warning(
            "message %s of queue %s is a dead letter: %s", message.message_id, self._rule.queue, reason
        )
        copy = Message(
            message.body,
            headers={**message.headers, _REASON: reason, _QUEUE: self._rule.queue},
            content_type=message.content_type,
            content_encoding=message.content_encoding,
            delivery_mode=DeliveryMode.PERSISTENT,
            correlation_id=message.correlation_id,
            message_id=message.message_id,
            timestamp=message.timestamp,
            type=message.type,
            app_id=message.app_id,
        )
        await channel.default_exchange.publish(copy, self._rule.dead_letters, mandatory=True)


async def serve_intakes(rules: Sequence[IntakeRule], stopping: asyncio.Event) -> tuple[int, int]:
    """Read these queues until ``stopping`` is set. Returns how many messages became jobs, and how many dead letters."""
    intakes = [QueueReader(rule) for rule in rules]
    await asyncio.gather(*(intake.run(stopping) for intake in intakes))
    return sum(intake.accepted for intake in intakes), sum(intake.refused for intake in intakes)


async def _declare(channel: AbstractChannel, name: str) -> None:
    """Create a durable queue unless there is one; an existing one may have arguments of its own."""
    from aio_pika.exceptions import ChannelNotFoundEntity

    try:
        await channel.declare_queue(name, passive=True)
    except ChannelNotFoundEntity:
        await channel.reopen()
        await channel.declare_queue(name, durable=True)
    await channel.close()


def _message_of(message: AbstractIncomingMessage, rule: IntakeRule) -> IntakeMessage:
    given: object = message.message_id if rule.id_header is None else message.headers.get(rule.id_header)
    where = "message_id" if rule.id_header is None else f"header {rule.id_header}"
    if isinstance(given, int):
        given = str(given)
    if not isinstance(given, str) or not 0 < len(given) <= _LONGEST_ID:
        raise PoisonMessage(f"it has no {where} of 1 to {_LONGEST_ID} characters, which identifies its job")
    return IntakeMessage(
        given,
        rule.queue,
        message.body,
        message.headers,
        message.content_type,
        message.correlation_id,
        message.timestamp,
    )


def _options(message: IntakeMessage, rule: IntakeRule) -> dict[str, Any]:
    options: dict[str, Any] = {"unique": rule.key(message.id)}
    trace, correlation = message.headers.get("traceparent"), message.correlation_id
    if isinstance(trace, str) and len(trace) == _TRACEPARENT:
        options["headers"] = {"traceparent": trace}
    if correlation and len(correlation) <= _LONGEST_ID and correlation.isprintable():
        options["correlation_id"] = correlation
    return options


def _set(failed: asyncio.Future[BaseException], given: tuple[Any, ...]) -> None:
    """Record the first failure; the library passes the error as the last argument, or none."""
    if not failed.done():
        error = given[-1] if given and isinstance(given[-1], BaseException) else None
        failed.set_result(error or ConnectionError("the connection was closed"))


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
