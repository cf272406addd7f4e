"""Listing and ending of sign-in sessions."""

from __future__ import annotations

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import session_document
from tidemill.domain.access import Role
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import BodyModel, Document, Instant, Items, QueryModel, Words
from tidemill.rest.routes import Routes

routes = Routes("sessions")


class SessionsQuery(QueryModel):
    """Filter of sessions."""

    who: Words | None = Field(None, description="Only sessions of this user.")


class SessionDocument(Document):
    """One sign-in to the dashboard."""

    id: str
    who: str
    key_id: str | None = Field(description="The API key with which the user signed in.")
    issuer: str | None = Field(description="The provider of single sign-on.")
    subject: str | None = Field(description="The user's id at the provider.")
    created_at: Instant | None
    expires_at: Instant


class UserBody(BodyModel):
    """The user whose sessions end."""

    who: Words = Field(description="The name that the list shows.")


@routes.get(
    "/api/sessions",
    role=Role.SUPER_ADMIN,
    query=SessionsQuery,
    answer=Items[SessionDocument],
    everywhere=True,
)
async def list_sessions(request: ApiRequest) -> Response:
    """List the sessions that have not ended, oldest first."""
    sessions = await request.read(request.app.sessions.list)
    who = request.query.who
    return request.page([session_document(session) for session in sessions if who in (None, session.who)])


@routes.post(
    "/api/sessions/end", role=Role.SUPER_ADMIN, body=UserBody, answer=Items[SessionDocument], everywhere=True
)
async def end_sessions_of_user(request: ApiRequest) -> Response:
    """End all sessions of one user."""
    ended = await request.act(request.app.sessions.end_of, request.body.who)
    return request.page([session_document(session) for session in ended])


@routes.delete("/api/sessions/{id}", role=Role.SUPER_ADMIN, everywhere=True)
async def end_session(request: ApiRequest) -> Response:
    """End a session. All processes refuse it within seconds."""
    await request.act(request.app.sessions.end, [request.path["id"]])
    return request.empty()
