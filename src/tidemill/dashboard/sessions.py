"""List of sign-in sessions, and their end."""

from __future__ import annotations

from starlette.responses import Response

from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.errors import KeyNotFound

pages = PageRoutes()


@pages.get("/settings/sessions", role=Role.SUPER_ADMIN, everywhere=True)
async def sessions(request: PageRequest) -> Response:
    """List the sessions that have not ended."""
    living = await request.read(request.app.sessions.list)
    return request.render("sessions.html", sessions=living)


@pages.post("/settings/sessions/end", role=Role.SUPER_ADMIN, everywhere=True)
async def end(request: PageRequest) -> Response:
    """End one session, or all sessions of a user."""
    who = request.form.get("who")
    if who is not None:
        ended = await request.act(request.app.sessions.end_of, who)
        return request.back("/settings/sessions", f"{len(ended)} sessions of {who} have ended.")
    try:
        await request.act(request.app.sessions.end, [request.form.get("id") or ""])
    except KeyNotFound as error:
        return request.back("/settings/sessions", f"{error.message}.", good=False)
    return request.back("/settings/sessions", "The session has ended.")
