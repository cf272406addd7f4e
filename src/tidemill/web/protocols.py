"""uvicorn protocols with limits on request size and arrival time.

httptools is used if it is installed, because it is faster; otherwise h11. h11 limits the size of a request head itself.
httptools does not, so its bytes are counted here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tidemill.web.settings import ApiSettings


def most_unread(settings: ApiSettings) -> int:
    """Maximum number of unparsed bytes.

    It is larger than the limits of the middleware, so that a slightly oversized head still gets an error response.
    """
    return 2 * (settings.max_headers + settings.max_url)


def options(settings: ApiSettings) -> dict[str, Any]:
    """Return the uvicorn options for these limits."""
    most = most_unread(settings)
    return {
        "http": _httptools(most, settings.request_timeout) or _h11(settings.request_timeout),
        "h11_max_incomplete_event_size": most,
    }


class _Timely:
    """Closes a connection if a request does not arrive completely in time."""

    _late: asyncio.TimerHandle | None = None

    def expect(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, seconds: float) -> None:
        if self._late is None:
            self._late = loop.call_later(seconds, transport.close)

    def has_arrived(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _h11(seconds: float) -> type[asyncio.Protocol]:
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Timely(_Timely, H11Protocol):
        """uvicorn's h11 protocol with a time limit. h11 limits the size of a request itself."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.expect(self.loop, transport, seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self.has_arrived()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
                self.expect(self.loop, self.transport, seconds)
            else:
                self.has_arrived()

    return Timely


def _httptools(most: int, seconds: float) -> type[asyncio.Protocol] | None:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
    except ImportError:
        return None

    class Bounded(_Timely, HttpToolsProtocol):
        """uvicorn's httptools protocol with limits on size and time."""

        _unread = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.expect(self.loop, transport, seconds)

        def connection_lost(self, exc: Exception | None) -> None:
            self.has_arrived()
            super().connection_lost(exc)

        def on_message_begin(self) -> None:
            # A further request on a keep-alive connection.
            self.expect(self.loop, self.transport, seconds)
            super().on_message_begin()

        def data_received(self, data: bytes) -> None:
            self._unread += len(data)
            super().data_received(data)
            if self._unread > most and not self.transport.is_closing():
                under_way: RequestResponseCycle | None = self.cycle  # None before the first request.
                if under_way is None or under_way.response_complete:
                    self.send_400_response("Invalid HTTP request received.")
                else:
                    self.transport.close()

        def on_headers_complete(self) -> None:
            self._unread = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._unread = 0
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._unread = 0
            self.has_arrived()
            super().on_message_complete()

    return Bounded
