"""Pauses of a queue, a task, a tenant or everything."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import pause_document
from tidemill.domain.access import Role
from tidemill.domain.records import PauseKind
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import BodyModel, Items, QueryModel, Words
from tidemill.rest.routes import Routes
from tidemill.rest.tasks import PauseDocument

routes = Routes("pauses")

Kind = Literal["queue", "task", "tenant", "all"]

assert set(Kind.__args__) == set(PauseKind)  # type: ignore[attr-defined]

_NAME = "The name of the queue, task or tenant; none for `all`."


class PauseBody(BodyModel):
    """A pause to set, with its reason."""

    kind: Kind = Field(examples=["tenant"])
    name: str = Field("", max_length=200, description=_NAME, examples=["blue"])
    reason: Words | None = None


class PauseQuery(QueryModel):
    """The pause to end."""

    kind: Kind
    name: str = Field("", max_length=200, description=_NAME)


@routes.get("/api/pauses", role=Role.VIEWER, answer=Items[PauseDocument], everywhere=True)
async def list_pauses(request: ApiRequest) -> Response:
    """List active pauses, ordered by kind and name."""
    return request.page([pause_document(pause) for pause in await request.read(request.app.control.pauses)])


@routes.post("/api/pauses", role=Role.OPERATOR, body=PauseBody, answer=PauseDocument, everywhere=True)
async def pause(request: ApiRequest) -> Response:
    """Pause a queue, a task, a tenant or everything (`all`, for admins). Running jobs continue.

    Pausing the same thing again keeps the first pause and its reason.
    """
    body: PauseBody = request.body
    _check_role(request, body.kind)
    standing = await request.act(request.app.control.pause, body.kind, body.name, reason=body.reason)
    return request.reply(pause_document(standing))


@routes.delete("/api/pauses", role=Role.OPERATOR, query=PauseQuery, everywhere=True)
async def resume(request: ApiRequest) -> Response:
    """End a pause. Ending a pause that does not exist is not an error."""
    query: PauseQuery = request.query
    _check_role(request, query.kind)
    await request.act(request.app.control.resume, query.kind, query.name)
    return request.empty()


def _check_role(request: ApiRequest, kind: str) -> None:
    if kind == PauseKind.ALL:
        request.need("pauses.all")
