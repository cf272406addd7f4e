"""Audit log."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import audit_document
from tidemill.domain.access import Role
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.models import Document, Instant, Items, Limit, QueryModel
from tidemill.rest.routes import Routes

routes = Routes("audit")


class AuditQuery(QueryModel):
    """Filter and page of audit entries."""

    who: str | None = None
    action: str | None = None
    subject: str | None = None
    sort: Literal["newest", "oldest"] = "newest"
    limit: Limit = 100
    cursor: int | None = Field(None, ge=0, le=2**62, description="The `next` of the previous page.")


class AuditDocument(Document):
    """One entry; its hash chains it to the previous one."""

    number: int
    at: Instant
    who: str = Field(examples=["key:ab12cd34 (deploy)"])
    action: str = Field(examples=["job.cancelled"])
    subject: str
    tenant: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    hash: str


@routes.get("/api/audit", role=Role.ADMIN, query=AuditQuery, answer=Items[AuditDocument])
async def list_audit(request: ApiRequest) -> Response:
    """List audit entries, newest first by default."""
    query: AuditQuery = request.query
    newest = query.sort == "newest"
    records = await request.read(
        request.app.audit.list,
        tenant=request.tenant,
        after=0 if newest or query.cursor is None else query.cursor,
        before=query.cursor if newest else None,
        newest=newest,
        limit=query.limit,
        who=query.who,
        action=query.action,
        subject=query.subject,
    )
    following = str(records[-1].number) if len(records) == query.limit else None
    return request.page([audit_document(record) for record in records], following)
