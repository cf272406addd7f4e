"""Archived jobs: finding them, and reading one whole."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.archive import archived_document
from tidemill.domain.access import Role
from tidemill.domain.retention import ArchivedJob
from tidemill.rest.call import Call
from tidemill.rest.job_models import Status
from tidemill.rest.models import Cursor, Document, Instant, Items, Limit, Query
from tidemill.rest.routes import Routes

routes = Routes("archive")


class ArchiveQuery(Query):
    """Which archived jobs, and which page of them."""

    status: list[Status] = Field([], description="May be repeated.")
    task: list[str] = Field([], description="May be repeated.")
    queue: list[str] = Field([], description="May be repeated.")
    ids: Annotated[list[UUID], Field(max_length=100)] = Field([], description="May be repeated.")
    correlation_id: str | None = None
    parent_id: UUID | None = None
    created_after: Instant | None = None
    created_before: Instant | None = None
    sort: Literal["newest", "oldest"] = "newest"
    limit: Limit = 100
    cursor: Cursor = None


class ArchivedDocument(Document):
    """One archived job. ``sound`` says that the document is what was written, byte for byte."""

    id: UUID
    task: str
    status: Status
    tenant: str
    queue: str
    created_at: Instant
    finished_at: Instant
    archived_at: Instant | None
    correlation_id: str
    parent_id: UUID | None
    tier: str
    policy: str
    sound: bool
    document: dict[str, Any] = Field(description="The job, its executions and its log lines.")


@routes.get("/api/archive/jobs", role=Role.VIEWER, query=ArchiveQuery, answer=Items[ArchivedDocument])
async def search_archive(call: Call) -> Response:
    """The archived jobs that match, page by page."""
    query: ArchiveQuery = call.query
    where = query.model_dump(exclude={"tenant", "sort", "limit", "cursor"}, exclude_defaults=True)
    page = await call.read(
        call.app.archive.search,
        limit=query.limit,
        cursor=query.cursor,
        sort=query.sort,
        tenant=call.tenant,
        **where,
    )
    return call.page([_shown(call, each) for each in page.items], page.next)


def _shown(call: Call, found: ArchivedJob) -> dict[str, Any]:
    document: dict[str, Any] = archived_document(found)
    if not call.sees_secrets:
        content = document["document"]
        job = dict(content.get("job", {}))
        # Arguments and result are texts inside the text: their names cannot be judged without taking them apart.
        for name in ("args", "result"):
            if job.get(name) is not None:
                job[name] = "***"
        document["document"] = call.masked({**content, "job": job})
    return document
