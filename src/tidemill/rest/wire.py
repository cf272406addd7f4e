"""How requests are read off the wire: by httptools where it is installed, which is faster, else by h11.

Either is told how much it may read of one head. httptools by itself reads any amount, so its bytes are counted here. What a
request means is none of this room's business.
"""

from __future__ import annotations

import asyncio
from typing import Any

from tidemill.rest.settings import ApiSettings


def most_unread(settings: ApiSettings) -> int:
    """Bytes without a whole head or a piece of a body in them, at most. A head that is a little too large gets an answer of ours."""
    return 2 * (settings.max_headers + settings.max_url)


def options(settings: ApiSettings) -> dict[str, Any]:
    """What uvicorn is told about it."""
    most = most_unread(settings)
    return {"http": _httptools(most) or "h11", "h11_max_incomplete_event_size": most}


def _httptools(most: int) -> type[asyncio.Protocol] | None:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
    except ImportError:
        return None

    class Bounded(HttpToolsProtocol):
        """Ends a connection that says more and more, and never comes to the point."""

        _unread = 0

        def data_received(self, data: bytes) -> None:
            self._unread += len(data)
            super().data_received(data)
            if self._unread > most and not self.transport.is_closing():
                under_way: RequestResponseCycle | None = self.cycle  # none before the first request
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
            super().on_message_complete()

    return Bounded
