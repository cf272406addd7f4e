"""Wake-ups of one store over a server for messages.

They are hints: nothing may depend on one arriving. While the server is away, workers poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from tidemill.errors import StoreUnavailable
from tidemill.loop_thread import cancel_rest
from tidemill.stores.bus.connection import PATIENCE, BusConnection
from tidemill.stores.server import BusStatus
from tidemill.stores.wakeup_messages import CHANGE, DISCONNECTED, LOCAL, read_topics, write_topics
from tidemill.stores.wakeup_relay import RelayedListener, WakeupRelay

_log = logging.getLogger("tidemill.store")

_FIRST, _LONGEST = 0.2, 5.0  # seconds between two attempts to connect
_SPREAD = 0.5  # seconds over which the processes of a fleet look for jobs after the server is lost
_LARGEST = 1 << 20  # bytes of a message; Tidemill's are much smaller
_JOIN = 10.0

UNCOMMITTED = (0.1, 1.0)
"""Seconds after which a wake-up is sent for a transaction whose commit is not seen."""


class _Loop(asyncio.SelectorEventLoop):
    """The event loop of the bus, which serves nothing else."""

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        # Python starts no threads while it exits, and a script may send its only wake-up then.
        return socket.getaddrinfo(host, port, **options)


class BusListener(RelayedListener):
    """Receives the wake-ups of a bus."""

    def __init__(self, on_close: Callable[[BusListener], None]) -> None:
        self.outlet, self._inlet = socket.socketpair()
        super().__init__(self._inlet)
        self._on_close = on_close
        self._once = threading.Lock()

    def close(self) -> None:
        if self._once.acquire(blocking=False):
            self._on_close(self)
            super().close()
            self.outlet.close()
            self._inlet.close()


class WakeupBus:
    """Sends and receives the wake-ups of one store, on a thread of its own.

    After each connect its listeners report ``change``, because messages may have been missed; when the connection is lost, they
    report ``change`` and ``disconnected``. Any thread may call it. The thread starts with the first call.
    """

    def __init__(
        self,
        make: Callable[[], BusConnection],
        channel: Callable[[], str],
        shown: str,
        random: Random | None = None,
    ) -> None:
        """Prepare a bus. ``make`` creates a connection, ``channel`` reads the name of the store's channel."""
        self._make, self._read_channel, self._shown = make, channel, shown
        self._random = random or Random()  # noqa: S311  (spreads load, keeps no secret)
        self._relay = WakeupRelay()
        self._listeners: dict[int, BusListener] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._loop: _Loop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._connection: BusConnection | None = None
        self._channel = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: str | None = None
        self._error: str | None = None

    # Any thread ----------------------------------------------------------------------------------------------------------

    def send(self, topics: Iterable[str]) -> None:
        """Send these topics now; waits a moment for the server, and gives up without an error."""
        message = write_topics(topics).encode()
        self._name()
        with contextlib.suppress(Exception):
            loop = self._started()
            asyncio.run_coroutine_threadsafe(self._publish(message), loop).result(2 * PATIENCE)

    def send_later(self, topics: Iterable[str]) -> None:
        """Send these topics a moment later, for a transaction that commits elsewhere."""
        message = write_topics(topics).encode()
        self._name()
        loop = self._started()
        for delay in UNCOMMITTED:
            loop.call_soon_threadsafe(self._delay, delay, message)

    def listen(self) -> BusListener:
        """A new listener."""
        self._name()
        listener = BusListener(self._forget)
        with self._lock:
            self._listeners[id(listener)] = listener
        self._relay.add(id(listener), listener.outlet)
        loop = self._started()
        loop.call_soon_threadsafe(self._wanted.set)
        return listener

    def status(self) -> BusStatus:
        """Whether the server answers."""
        with contextlib.suppress(Exception):
            loop = self._started()
            asyncio.run_coroutine_threadsafe(self._answers(), loop).result(2 * PATIENCE)
        connected = self._connection is not None
        return BusStatus(self._shown, self._server, None if connected else self._error or "no answer yet")

    def close(self) -> None:
        """Disconnect and close all listeners. Closing twice is harmless."""
        with self._lock:
            closed, self._closed = self._closed, True
            loop, thread = self._loop, self._thread
        for listener in list(self._listeners.values()):
            listener.close()
        if not closed and loop is not None and thread is not None and self._pid == os.getpid():
            loop.call_soon_threadsafe(self._main.cancel)
            thread.join(_JOIN)

    def _name(self) -> None:
        """Read the name of the channel, which needs the database, in the thread of the caller."""
        if not self._channel:
            self._channel = self._read_channel()

    def _forget(self, listener: BusListener) -> None:
        self._relay.remove(id(listener))
        with self._lock:
            self._listeners.pop(id(listener), None)

    def _started(self) -> _Loop:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if self._loop is None:
                self._loop = _Loop()
                self._wanted, self._ready = asyncio.Event(), asyncio.Event()
                self._main = self._loop.create_task(self._run())
                self._thread = threading.Thread(target=self._serve, name="tidemill-bus", daemon=True)
                self._thread.start()
            return self._loop

    # The thread of the bus -----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        assert self._loop is not None
        with contextlib.closing(self._loop):
            with contextlib.suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._main)
            self._loop.run_until_complete(cancel_rest())

    async def _run(self) -> None:
        pause = _FIRST
        while True:
            connection = self._make()
            try:
                async with asyncio.timeout(2 * PATIENCE):
                    await connection.open()
                self._found(connection)
                pause = _FIRST
                error = await self._until_lost(connection)
            except Exception as failed:  # noqa: BLE001  (the bus must not end)
                error = failed
            finally:
                before, self._connection = self._connection, None
                self._ready.clear()
                await connection.close()
            self._complain(error)
            if before is not None:
                await asyncio.sleep(self._random.uniform(0.0, _SPREAD))
                self._relay.send(frozenset({CHANGE, DISCONNECTED}))
            await asyncio.sleep(self._random.uniform(pause / 2, pause))
            pause = min(2 * pause, _LONGEST)

    async def _until_lost(self, connection: BusConnection) -> Exception:
        """Serve a connection until it fails; returns why."""
        lost = asyncio.ensure_future(connection.lost())
        wanted = asyncio.ensure_future(self._wanted.wait())
        try:
            await asyncio.wait({lost, wanted}, return_when=asyncio.FIRST_COMPLETED)
            if not lost.done():
                async with asyncio.timeout(2 * PATIENCE):
                    await connection.subscribe(self._channel, self._received)
                self._relay.send(frozenset({CHANGE}))
            return await lost
        finally:
            lost.cancel()
            wanted.cancel()

    def _found(self, connection: BusConnection) -> None:
        if self._error is not None:
            _log.info("the wake-up bus %s answers", self._shown)
        self._connection, self._server, self._error = connection, connection.server, None
        self._ready.set()

    def _complain(self, error: Exception) -> None:
        if self._error is None:
            _log.warning("the wake-up bus %s is away, so workers poll: %s", self._shown, _words(error))
        self._error = _words(error)

    def _received(self, message: bytes) -> None:
        topics = read_topics(message.decode(errors="replace")) if len(message) <= _LARGEST else {CHANGE}
        if topics := frozenset(topics - LOCAL):
            self._relay.send(topics)

    def _delay(self, seconds: float, message: bytes) -> None:
        assert self._loop is not None
        self._loop.call_later(seconds, self._attempt, message)

    def _attempt(self, message: bytes) -> None:
        task = asyncio.ensure_future(self._publish(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answers(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self._ready.wait()

    async def _publish(self, message: bytes) -> None:
        if self._connection is None:
            if self._error is not None:
                return  # known to be away: hints are not kept
            with contextlib.suppress(TimeoutError):
                await self._answers()
        connection = self._connection
        if connection is None:
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await connection.publish(self._channel, message)
        except Exception as error:  # noqa: BLE001  (whatever it is, the bus connects again)
            connection.lose(error)


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
