"""Server-sent events that notify open pages which kinds of objects changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from starlette.responses import Response

from tidemill.client.watch import KINDS
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.rest.streams import EventStream, LatestKinds, StreamEvent

pages = PageRoutes()

_numbers = itertools.count(1)


@pages.get("/live", role=Role.VIEWER)
async def live(visit: PageRequest) -> Response:
    """Stream ``change`` events, at most two per second. A reconnecting client first gets an event with all kinds."""
    slot = LatestKinds()
    if visit.request.headers.get("last-event-id"):
        slot.put(frozenset(KINDS))

    async def subscribe() -> Callable[[], None]:
        return visit.service.changes.subscribe(slot.put)

    def made(kinds: frozenset[str]) -> StreamEvent:
        return StreamEvent(str(next(_numbers)), "change", {"kinds": sorted(kinds)})

    async def still() -> bool:
        session = await visit.site.session(visit.request)
        return session is not None and session.identity == visit.identity

    return EventStream(visit, slot, subscribe, made, still)
