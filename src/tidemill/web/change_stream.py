"""Event stream of the kinds of things that changed."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Awaitable, Callable

from starlette.responses import Response

from tidemill.client.watch import KINDS
from tidemill.web.request import WebRequest
from tidemill.web.streams import EventStream, LatestKinds, StreamEvent

# Distinguishes the event ids of this process from those of others.
_HERE = secrets.token_hex(4)
_numbers = itertools.count(1)


def change_stream(request: WebRequest, recheck: Callable[[], Awaitable[bool]]) -> Response:
    """Stream ``change`` events, at most two per second, while ``recheck`` says that the caller is authorised.

    A reconnecting client first gets an event with all kinds, because it may have missed changes.
    """
    slot = LatestKinds()
    if request.headers.get("last-event-id"):
        slot.put(frozenset(KINDS))

    async def subscribe() -> Callable[[], None]:
        return request.service.changes.subscribe(slot.put)

    def made(kinds: frozenset[str]) -> StreamEvent:
        return StreamEvent(f"{_HERE}-{next(_numbers)}", "change", {"kinds": sorted(kinds)})

    return EventStream(request, slot, subscribe, made, recheck)
