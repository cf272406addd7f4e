"""The wire between hands and hubs, over a message broker.

A hand sends requests to any hub, and a hub answers. A hub may also tell something to one hand or to all. The broker stores nothing: a
message whose receiver is away is lost, and its sender finds out by the missing answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

from tidemill.errors import StoreUnavailable
from tidemill.stores.wire.frames import Assembler, MessageKind, WireMessage, frames_of, numbers

_log = logging.getLogger("tidemill.wire")

Answer = Callable[[bytes], None]
"""Sends the answer to one request. Any thread may call it, once."""

Handler = Callable[[bytes, UUID, Answer], None]
"""Takes a request of a hand, whose address is given. It is called on the thread of the wire and must not wait."""

CONNECT = 5.0
"""Seconds for one try to connect."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between two tries to connect
_JOIN = 5.0  # seconds
_LEAVE = 2.0  # seconds that a hub waits until no more requests reach it


class HubWire(Protocol):
    """A connection to a broker, for a hand or for a hub. Any thread may use it."""

    url: str  #: without the password

    def request(self, data: bytes, timeout: float) -> bytes:
        """Send a request to any hub and wait for the answer. Raises ``StoreUnavailable`` if none arrives in time."""

    def serve(self, handler: Handler) -> None:
        """Take requests, as one of several hubs."""

    def hear(self, heard: Callable[[bytes], None]) -> None:
        """Receive what hubs tell this hand. ``heard`` runs on the thread of the wire and must not wait."""

    def tell(self, address: UUID | None, data: bytes) -> None:
        """Tell something to the hand with this address, or to all hands. It may be lost."""

    def wait_connected(self, timeout: float) -> None:
        """Return once the broker is connected; raise ``StoreUnavailable`` after this time."""

    def stop_serving(self) -> None:
        """Leave further requests to other hubs. Those that have arrived can still be answered."""

    def close(self) -> None:
        """Disconnect; a second call has no effect."""


class Transport(Protocol):
    """A connection to a broker, used on one event loop."""

    largest: int  #: bytes of the largest frame

    async def publish(self, to: str, frame: bytes) -> None:
        """Send a frame to an address (see ``BrokerWire``)."""

    async def leave(self) -> None:
        """Receive nothing more that is sent to ``hub``."""

    async def wait_lost(self) -> None:
        """Return once the connection is lost."""

    async def close(self) -> None: ...


class BrokerWire(ABC):
    """A wire over a broker with an asyncio client, which runs on a thread of its own.

    An address of a frame is ``hub`` (any hub), ``hub.ID``, ``hand.ID`` or ``hands`` (all of them). ``address`` is the id of this side
    on the current connection. Each connection has another one: a broker that lost the former connection may still keep its queue,
    and may delete that by its name later. A connection over which no answer arrives is replaced for the same reason.
    """

    def __init__(self, url: str) -> None:
        self.url = without_password(url)
        self.address = uuid4()
        self._numbers = numbers()
        self._waiting: dict[int, _Reply] = {}
        self._handler: Handler | None = None
        self._heard: Callable[[bytes], None] | None = None
        self._outbox: deque[tuple[str, bytes]] = deque()
        self._assembler = Assembler()
        self._lock = threading.Lock()
        self._connected = threading.Event()
        self._closed = False
        self._leaves = False  # this hub takes no more requests
        self._left = threading.Event()
        self._largest = 0
        self._received_frames = 0
        self._is_silent = False  # an answer did not arrive, and nothing else either
        self._why = "the connection is being opened"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted: asyncio.Event | None = None
        self._changed: asyncio.Event | None = None
        self._thread: threading.Thread | None = None

    @abstractmethod
    async def _open(self, addresses: list[str], received: Callable[[bytes], None]) -> Transport:
        """Connect, and receive the frames to these addresses. Raises any exception on failure."""

    # Any thread ----------------------------------------------------------------------------------------------------------

    def request(self, data: bytes, timeout: float) -> bytes:
        self._start()
        self.wait_connected(min(timeout, 1.5 * CONNECT))
        number = next(self._numbers)
        frames = frames_of(WireMessage(MessageKind.REQUEST, self.address, number, data), self._largest)
        # The parts of a message must all reach the same hub.
        to = "hub" if len(frames) == 1 else f"hub.{self._find_hub(timeout)}"
        return self._ask(to, number, frames, timeout)

    def _find_hub(self, timeout: float) -> UUID:
        number = next(self._numbers)
        frames = frames_of(WireMessage(MessageKind.WHERE, self.address, number, b""), self._largest)
        return UUID(bytes=self._ask("hub", number, frames, timeout))

    def _ask(self, to: str, number: int, frames: list[bytes], timeout: float) -> bytes:
        reply = self._waiting[number] = _Reply()
        before = self._received_frames
        try:
            self._post([(to, frame) for frame in frames])
            if not reply.arrived.wait(timeout):
                if self._received_frames == before:
                    self._is_silent = True
                    self._post([])
                raise StoreUnavailable(
                    f"no hub answered over {self.url} within {timeout:g} s; is one running?"
                )
        finally:
            del self._waiting[number]
        if reply.error is not None:
            raise StoreUnavailable(reply.error)
        return reply.body

    def serve(self, handler: Handler) -> None:
        self._handler = handler
        self._start()

    def hear(self, heard: Callable[[bytes], None]) -> None:
        self._heard = heard
        self._start()

    def tell(self, address: UUID | None, data: bytes) -> None:
        if not self._connected.is_set():
            return
        to = "hands" if address is None else f"hand.{address}"
        message = WireMessage(MessageKind.NOTICE, self.address, next(self._numbers), data)
        self._post([(to, frame) for frame in frames_of(message, self._largest)])

    def wait_connected(self, timeout: float) -> None:
        self._start()
        if not self._connected.wait(timeout):
            raise StoreUnavailable(f"the broker at {self.url} cannot be used: {self._why}")

    def stop_serving(self) -> None:
        self._leaves = True
        if self._connected.is_set():
            self._post([])
            self._left.wait(_LEAVE)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            thread, loop = self._thread, self._loop
        if thread is None:
            return
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ring)
        if thread is not threading.current_thread():
            thread.join(_JOIN)

    def _post(self, frames: list[tuple[str, bytes]]) -> None:
        self._outbox.extend(frames)
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._ring)

    def _start(self) -> None:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("this wire was closed; open a new one")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tidemill-wire", daemon=True)
                self._thread.start()

    # The thread of the wire ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.run(self._main())

    def _ring(self) -> None:
        if self._changed is not None:
            self._changed.set()

    async def _main(self) -> None:
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while not self._closed:
            try:
                async with asyncio.timeout(CONNECT):
                    transport = await self._open(self._addresses(), self._received)
            except Exception as error:  # noqa: BLE001  (clients raise many kinds of errors; each means: not connected)
                self._not_connected(
                    f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                )
                await self._rest(pause * random.uniform(0.5, 1.0))  # noqa: S311  (spreads load)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            self._largest = transport.largest
            self._outbox.clear()
            self._is_silent = False
            self._connected.set()
            try:
                await self._use(transport)
            finally:
                self._connected.clear()
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(_JOIN):
                        await transport.close()
            if not self._closed:
                # The first connection keeps the address of requests that were posted before it was open.
                self.address = uuid4()
                self._not_connected("no answer arrived" if self._is_silent else "the connection was lost")

    def _addresses(self) -> list[str]:
        """The addresses of a hub, or of a hand."""
        if self._handler is not None:
            return [f"hub.{self.address}"] if self._leaves else ["hub", f"hub.{self.address}"]
        return [f"hand.{self.address}", "hands"]

    async def _use(self, transport: Transport) -> None:
        lost = asyncio.ensure_future(transport.wait_lost())
        assert self._changed is not None
        try:
            while not self._closed and not self._is_silent and not lost.done():
                await self._publish(transport)
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait([lost, changed], return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                self._changed.clear()
            await self._publish(transport)  # the last answers
        except Exception as error:  # noqa: BLE001  (the connection is replaced)
            _log.debug("the connection to %s failed: %r", self.url, error)
        finally:
            lost.cancel()

    async def _publish(self, transport: Transport) -> None:
        while self._outbox:
            to, frame = self._outbox.popleft()
            await transport.publish(to, frame)
        if self._leaves and not self._left.is_set():
            await transport.leave()
            self._left.set()

    async def _rest(self, seconds: float) -> None:
        assert self._changed is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        if not self._closed:
            self._changed.clear()

    def _not_connected(self, why: str) -> None:
        if why != self._why:
            _log.warning("the broker at %s cannot be used: %s", self.url, why)
        self._why = why
        for reply in list(self._waiting.values()):
            reply.fail(f"the broker at {self.url} cannot be used: {why}")

    # Messages ------------------------------------------------------------------------------------------------------------

    def _received(self, frame: bytes) -> None:
        self._received_frames += 1
        message = self._assembler.add(frame)
        if message is None:
            return
        match message.kind:
            case MessageKind.ANSWER:
                reply = self._waiting.get(message.number)
                if reply is not None:
                    reply.fill(message.body)
            case MessageKind.NOTICE:
                if self._heard is not None:
                    self._heard(message.body)
            case MessageKind.WHERE:
                self._answer(message, self.address.bytes)
            case MessageKind.REQUEST:
                if self._handler is not None:
                    self._handler(message.body, message.sender, lambda data: self._answer(message, data))

    def _answer(self, message: WireMessage, data: bytes) -> None:
        answer = WireMessage(MessageKind.ANSWER, self.address, message.number, data)
        self._post([(f"hand.{message.sender}", frame) for frame in frames_of(answer, self._largest)])


class _Reply:
    """The answer to a request, once it has arrived."""

    __slots__ = ("arrived", "body", "error")

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.body = b""
        self.error: str | None = None

    def fill(self, body: bytes) -> None:
        self.body = body
        self.arrived.set()

    def fail(self, error: str) -> None:
        self.error = error
        self.arrived.set()


def without_password(url: str) -> str:
    """The URL without the password.

    >>> without_password("nats://ann:secret@broker:4222/shop")
    'nats://ann@broker:4222/shop'
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}{at}{host}"))
