"""Server-sent events that notify open pages which kinds of objects changed."""

from __future__ import annotations

from starlette.responses import Response

from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.web.change_stream import change_stream

pages = PageRoutes()


@pages.get("/live", role=Role.VIEWER)
async def live(request: PageRequest) -> Response:
    """Stream ``change`` events while the user is signed in."""

    async def is_signed_in() -> bool:
        session = await request.site.session(request.http)
        if session is None:
            return False
        guard = request.service.guard
        return guard.authorize(request.operation, session.identity, request.http) == request.identity

    return change_stream(request, is_signed_in)
