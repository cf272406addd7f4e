"""Server-sent event streams with keep-alive comments and clean shutdown.

A stream does not queue events. A slow reader misses intermediate states and receives the latest one, so it costs no
memory and does not delay other readers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidemill.web.problems import Problem
from tidemill.web.request import WebRequest
from tidemill.web.responses import encode
from tidemill.web.service import Service

RECHECK = 5.0
"""Seconds after which the key is checked again before the next event is sent."""

_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]


class StreamEvent(NamedTuple):
    """One event; ``last`` ends the stream."""

    id: str
    name: str
    data: Any
    last: bool = False

    def encoded(self) -> bytes:
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self.id.encode(), self.name.encode(), encode(self.data))


class LatestValue:
    """Holds the latest value for one stream. ``put`` may be called from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.filled = asyncio.Event()
        self._value: Any = None
        self._full = False

    def put(self, value: Any) -> None:
        # If the loop is closed, there is no reader left.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._put, value)

    def _put(self, value: Any) -> None:
        self._value, self._full = self.merged(self._value, value) if self._full else value, True
        self.filled.set()

    def merged(self, before: Any, after: Any) -> Any:
        """Combine an unread value with a newer one."""
        return after

    def take(self) -> tuple[bool, Any]:
        """Return whether there is a new value, and the value."""
        full, self._full = self._full, False
        self.filled.clear()
        return full, self._value


class LatestKinds(LatestValue):
    """Accumulates sets of kinds, which stay small."""

    def merged(self, before: Any, after: Any) -> Any:
        return before | after


Open = Callable[[], Awaitable[Callable[[], None]]]
Made = Callable[[Any], StreamEvent | None]


Pages = Callable[[], Awaitable[tuple[list[StreamEvent], bool]]]
"""Returns the next events, and whether more of them can be read at once."""


class EventStream(Response):
    """A response that stays open until the last event, a disconnect, or the server's shutdown."""

    def __init__(
        self,
        request: WebRequest,
        slot: LatestValue,
        subscribe: Open,
        made: Made,
        recheck: Callable[[], Awaitable[bool]],
    ) -> None:
        super().__init__()
        self._service: Service = request.service
        self._head = request.http.method == "HEAD"
        self._identity = request.identity
        self._slot, self._subscribe, self._made, self._recheck = slot, subscribe, made, recheck

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, own = self._service, self._service.streams_of
        if service.streams >= service.settings.max_streams:
            raise Problem(503, "overloaded", "too many streams are open", headers={"retry-after": "5"})
        if own[self._identity] >= (most := service.settings.max_streams_per_key):
            raise Problem(
                429,
                "too_many_streams",
                f"{most} event streams of this key are open, the maximum; close one first",
                headers={"retry-after": "5"},
            )
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        if not self._head:
            own[self._identity] += 1
            try:
                await self._stream(receive, send)
            finally:
                own[self._identity] -= 1
                if not own[self._identity]:
                    del own[self._identity]
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream(self, receive: Receive, send: Send) -> None:
        stopping = self._service.stopping
        gone = asyncio.create_task(_gone(receive, self._slot))
        stopping.subscribe(self._slot.filled)
        end: Callable[[], None] | None = None
        try:
            end = await self._subscribe()
            await self._send(send, b"retry: 2000\n\n")
            await self._tell(send, gone)
        finally:
            if end is not None:
                end()
            stopping.unsubscribe(self._slot.filled)
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _tell(self, send: Send, gone: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        while True:
            try:
                async with asyncio.timeout(self._service.settings.heartbeat):
                    await self._slot.filled.wait()
            except TimeoutError:
                await self._send(send, b": still here\n\n")
            full, value = self._slot.take()
            if gone.done() or self._service.stopping.is_set:
                return
            if loop.time() - checked_at > RECHECK:
                checked_at = loop.time()
                if not await self._recheck():
                    return
            if full and await self._emit(send, value):
                return

    async def _emit(self, send: Send, value: Any) -> bool:
        """Send the event for a value, and return whether it was the last one."""
        event = self._made(value)
        if event is None:
            return False
        await self._send(send, event.encoded())
        return event.last

    async def _send(self, send: Send, data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})


def _no_event(_value: Any) -> StreamEvent | None:
    return None


class PageStream(EventStream):
    """A stream that loses no event: whenever its slot is filled, it reads the next events page by page."""

    def __init__(
        self,
        request: WebRequest,
        slot: LatestValue,
        subscribe: Open,
        pages: Pages,
        recheck: Callable[[], Awaitable[bool]],
    ) -> None:
        super().__init__(request, slot, subscribe, _no_event, recheck)
        self._pages = pages

    async def _emit(self, send: Send, value: Any) -> bool:
        while True:
            events, more = await self._pages()
            if events:
                await self._send(send, b"".join(event.encoded() for event in events))
                if events[-1].last:
                    return True
            if not more or self._service.stopping.is_set:
                return False


async def _gone(receive: Receive, slot: LatestValue) -> None:
    """Wait for the client to disconnect."""
    try:
        while (await receive())["type"] != "http.disconnect":
            pass
    finally:
        slot.filled.set()
