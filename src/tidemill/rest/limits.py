"""Limits and rates: list, set and remove them, and close circuit breakers."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import limit_document
from tidemill.domain.access import Role
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import BodyModel, Document, Instant, Items, Name, QueryModel
from tidemill.rest.routes import Routes

routes = Routes("limits")

_NAME = "Name of the limit, such as `queue/mail`, `task/send`, or one key of a limit."


class LimitKeyDocument(Document):
    """The use of one key of a limit."""

    name: str
    used: int
    room: int | None
    opens_at: Instant | None


class LimitDocument(Document):
    """One limit: its rule, its use and its keys."""

    name: str = Field(examples=["queue/mail"])
    kind: str = Field(description="`concurrency`, `rate`, `depth` or `breaker`.")
    max: int
    per: float | None = Field(description="Seconds of a rate.")
    burst: int | None
    used: int
    room: int | None = Field(description="Jobs that may start now; null without a limit.")
    opens_at: Instant | None
    phase: str | None = Field(description="State of a circuit breaker.")
    pinned: bool = Field(description="Whether the limit was set at run time and overrides the code.")
    changed_at: Instant | None
    changed_by: str | None
    keys: list[LimitKeyDocument]


class LimitsQuery(QueryModel):
    """Filter of limits."""

    name: str | None = Field(None, max_length=400, description=_NAME)


class LimitQuery(QueryModel):
    """The limit to remove."""

    name: Name = Field(description=_NAME)


class LimitBody(BodyModel):
    """A limit to set."""

    name: Name = Field(description=_NAME, examples=["queue/mail"])
    max: int = Field(
        ge=0, le=2_147_483_647, description="Jobs at the same time, or within `per`; 0 lifts the limit."
    )
    per: float | None = Field(
        None, gt=0, le=1e9, description="Make it a rate: `max` starts within these seconds."
    )
    burst: int | None = Field(
        None, ge=1, le=2_147_483_647, description="Burst size of the rate (token bucket)."
    )


class BreakerBody(BodyModel):
    """The circuit breaker to close."""

    name: Name = Field(description="Name of the breaker.", examples=["breaker/payments"])


@routes.get("/api/limits", role=Role.VIEWER, query=LimitsQuery, answer=Items[LimitDocument], everywhere=True)
async def list_limits(request: ApiRequest) -> Response:
    """List the limits with their use, or the one with this name."""
    query: LimitsQuery = request.query
    limits = request.app.limits
    found = (
        await request.read(limits.list)
        if query.name is None
        else [await request.read(limits.get, query.name)]
    )
    return request.page([limit_document(limit) for limit in found])


@routes.put("/api/limits", role=Role.ADMIN, body=LimitBody, answer=LimitDocument, everywhere=True)
async def set_limit(request: ApiRequest) -> Response:
    """Set a limit that overrides the code. Workers apply it within five seconds; running jobs continue."""
    body: LimitBody = request.body
    per = None if body.per is None else timedelta(seconds=body.per)
    limit = await request.act(request.app.limits.set, body.name, body.max, per=per, burst=body.burst)
    return request.reply(limit_document(limit))


@routes.delete("/api/limits", role=Role.ADMIN, query=LimitQuery, everywhere=True)
async def unset_limit(request: ApiRequest) -> Response:
    """Remove a limit that was set at run time, so that the limit of the code applies again."""
    await request.act(request.app.limits.unset, request.query.name)
    return request.empty()


@routes.post(
    "/api/limits/reset-breaker", role=Role.OPERATOR, body=BreakerBody, answer=LimitDocument, everywhere=True
)
async def reset_breaker(request: ApiRequest) -> Response:
    """Close a circuit breaker so that its jobs run again."""
    return request.reply(
        limit_document(await request.act(request.app.limits.reset_breaker, request.body.name))
    )
