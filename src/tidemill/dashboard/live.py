"""That something moved, told to open pages: which kinds of things, never which ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from starlette.responses import Response

from tidemill.client.changes import KINDS
from tidemill.dashboard.pages import Pages
from tidemill.dashboard.visit import Visit
from tidemill.domain.access import Role
from tidemill.rest.streams import Event, EventStream, Kinds

pages = Pages()

_numbers = itertools.count(1)


@pages.get("/live", role=Role.VIEWER)
async def live(visit: Visit) -> Response:
    """Server-sent events named ``change``, at most two a second; who comes back is told that something may have moved."""
    slot = Kinds()
    if visit.request.headers.get("last-event-id"):
        slot.put(frozenset(KINDS))

    async def subscribe() -> Callable[[], None]:
        return visit.service.changes.subscribe(slot.put)

    def made(kinds: frozenset[str]) -> Event:
        return Event(str(next(_numbers)), "change", {"kinds": sorted(kinds)})

    async def still() -> bool:
        session = await visit.site.session(visit.request)
        return session is not None and session.identity == visit.identity

    return EventStream(visit, slot, subscribe, made, still)
