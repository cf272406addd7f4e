"""Errors: failures grouped by cause; mute, resolve and retry them."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import error_group_document, failure_count_document
from tidemill.client.error_groups import ErrorGroup
from tidemill.domain.access import Role
from tidemill.domain.failures import KEPT, FailurePart
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_models import ActedDocument
from tidemill.rest.models import BodyModel, Document, Instant, Items, Limit, Name, QueryModel, Seconds
from tidemill.rest.routes import Routes

routes = Routes("errors")

_WINDOW = f"Seconds before now in which failures are counted; at most {KEPT.days} days."
_LONGEST = KEPT.total_seconds()


class ErrorGroupDocument(Document):
    """Failures with one cause: the class of the error, and the innermost frame of the user's code."""

    fingerprint: str = Field(examples=["9f86d081884c7d65"])
    type: str | None = Field(description="Class of the error; null if no error was raised.")
    place: str | None = Field(description="File and function in the user's code.")
    message: str | None = Field(
        description="Message of the latest failure, with addresses, paths, quoted texts and numbers masked."
    )
    task: str = Field(description="Task of the latest failure.")
    jobs: int = Field(description="Failures within the window.")
    tasks: int
    tenants: int
    first_at: Instant = Field(description="The first failure, also before the window.")
    last_at: Instant
    status: str = Field(description="`open`, `regressed`, `muted` or `resolved`.")
    is_new: bool = Field(description="Whether it failed for the first time since the latest deploy.")
    regressed_since_deploy: bool
    marked_at: Instant | None
    marked_by: str | None
    example: UUID | None = Field(description="The job that failed last, if it may still be stored.")
    trend: list[int] = Field(description="Failures in equal steps of the window, oldest first.")


class FailureCountDocument(Document):
    """The failures of one variant, task or tenant of a group."""

    name: str
    jobs: int
    last_at: Instant
    message: str | None
    example: UUID | None


class ErrorsQuery(QueryModel):
    """Filter of error groups."""

    window: Seconds = Field(86_400, gt=0, le=_LONGEST, description=_WINDOW)
    status: Literal["open", "regressed", "muted", "resolved"] | None = None
    task: Name | None = Field(None, description="Only failures of this task.")
    limit: Limit = 100


class ErrorQuery(QueryModel):
    """The time window of one group."""

    window: Seconds = Field(_LONGEST, gt=0, le=_LONGEST, description=_WINDOW)


class ErrorPartsQuery(ErrorQuery):
    """How to divide the failures of a group."""

    by: FailurePart = Field(
        FailurePart.VARIANT, description="`variant` (masked message), `task` or `tenant`."
    )
    limit: Limit = 20


class ErrorRetryBody(BodyModel):
    """How to retry the jobs of a group."""

    spread: float | None = Field(
        None, gt=0, le=86_400, description="Start the jobs evenly over these seconds instead of all at once."
    )


@routes.get("/api/errors", role=Role.VIEWER, query=ErrorsQuery, answer=Items[ErrorGroupDocument])
async def list_errors(request: ApiRequest) -> Response:
    """List failures of the window grouped by cause, most failures first."""
    query: ErrorsQuery = request.query
    rows = await request.read(
        request.app.errors.list,
        query.window,
        status=query.status,
        task=query.task,
        limit=query.limit,
        tenant=request.tenant,
    )
    return request.page([_shown(request, row) for row in rows])


@routes.get("/api/errors/{fingerprint}", role=Role.VIEWER, query=ErrorQuery, answer=ErrorGroupDocument)
async def get_error(request: ApiRequest) -> Response:
    """Return one group."""
    window = request.query.window
    row = await request.read(
        request.app.errors.get, request.path["fingerprint"], window, tenant=request.tenant
    )
    return request.reply(_shown(request, row))


@routes.get(
    "/api/errors/{fingerprint}/parts",
    role=Role.VIEWER,
    query=ErrorPartsQuery,
    answer=Items[FailureCountDocument],
)
async def get_error_parts(request: ApiRequest) -> Response:
    """Count the failures of one group by variant, task or tenant, most failures first."""
    query: ErrorPartsQuery = request.query
    rows = await request.read(
        request.app.errors.parts,
        request.path["fingerprint"],
        query.by,
        query.window,
        limit=query.limit,
        tenant=request.tenant,
    )
    return request.page(request.failure_rows(failure_count_document(row) for row in rows))


@routes.post("/api/errors/{fingerprint}/mute", role=Role.OPERATOR, answer=ErrorGroupDocument)
async def mute_error(request: ApiRequest) -> Response:
    """Mute a group: its failures are counted, and the list of open errors leaves it out."""
    return await _mark(request, request.app.errors.mute)


@routes.post("/api/errors/{fingerprint}/unmute", role=Role.OPERATOR, answer=ErrorGroupDocument)
async def unmute_error(request: ApiRequest) -> Response:
    """Open a muted group again."""
    return await _mark(request, request.app.errors.unmute)


@routes.post("/api/errors/{fingerprint}/resolve", role=Role.OPERATOR, answer=ErrorGroupDocument)
async def resolve_error(request: ApiRequest) -> Response:
    """Mark a group as resolved. If it fails again, its status is `regressed`."""
    return await _mark(request, request.app.errors.resolve)


@routes.post("/api/errors/{fingerprint}/unresolve", role=Role.OPERATOR, answer=ErrorGroupDocument)
async def unresolve_error(request: ApiRequest) -> Response:
    """Open a resolved group again."""
    return await _mark(request, request.app.errors.unresolve)


@routes.post(
    "/api/errors/{fingerprint}/retry",
    role=Role.OPERATOR,
    body=ErrorRetryBody,
    body_optional=True,
    answer=ActedDocument,
)
async def retry_error(request: ApiRequest) -> Response:
    """Give every job whose last failure is in the group another chain of attempts."""
    body: ErrorRetryBody | None = request.body
    acted = await request.act(
        request.app.errors.retry,
        request.path["fingerprint"],
        spread=None if body is None else body.spread,
        tenant=request.tenant,
    )
    return request.reply({"done": acted.done, "skipped": acted.skipped, "more": False})


async def _mark(request: ApiRequest, mark: Any) -> Response:
    row = await request.act(mark, request.path["fingerprint"], tenant=request.tenant)
    return request.reply(_shown(request, row))


def _shown(request: ApiRequest, row: ErrorGroup) -> dict[str, Any]:
    return request.failure_rows([error_group_document(row)])[0]
