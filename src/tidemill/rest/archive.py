"""Archived jobs: finding them, reading one whole, and archiving what is due."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.archive import BUDGET, MOST
from tidemill.client.documents import archived_document
from tidemill.client.reports import document
from tidemill.domain.access import Role
from tidemill.domain.retention import ArchivedJob
from tidemill.rest.call import Call
from tidemill.rest.job_models import Status
from tidemill.rest.models import Body, Cursor, Document, Instant, Items, Limit, Query, Seconds
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


class ArchiveBody(Body):
    """How much, and for how long."""

    limit: int = Field(MOST, ge=1, le=50_000, description="Jobs to archive at most.")
    budget: float = Field(BUDGET.total_seconds(), gt=0, le=300, description="Seconds to spend at most.")
    older_than: Seconds | None = Field(
        None, description="Seconds since a job ended; as the policies say unless given."
    )


class PolicyRunDocument(Document):
    """What was done for one policy. `error` is the code of what ended it before it was through."""

    policy: str
    tier: str
    archived: int
    verified: int
    failed: int = Field(description="Copies that are not what was written; their jobs stay.")
    changed: int = Field(description="Jobs that were opened again meanwhile; they stay.")
    bytes: int
    statuses: dict[str, int] = Field(description="Jobs archived, by their status.")
    more: bool
    took: float
    error: str | None


class ArchiveRunDocument(Document):
    """What was archived; ``more`` says that there is more that is due."""

    at: Instant
    archived: int
    failed: int
    bytes: int
    more: bool
    took: float = Field(description="Seconds.")
    policies: list[PolicyRunDocument]


@routes.post(
    "/api/archive/run",
    role=Role.ADMIN,
    body=ArchiveBody,
    body_optional=True,
    answer=ArchiveRunDocument,
    everywhere=True,
)
async def run_archive(call: Call) -> Response:
    """Archive what is due now; each copy is read back before its original goes. One at a time for the whole store."""
    body: ArchiveBody = call.body
    done = await call.act(
        call.app.archive.run,
        older_than=None if body.older_than is None else timedelta(seconds=body.older_than),
        limit=body.limit,
        budget=timedelta(seconds=body.budget),
    )
    return call.reply(document(done))


def _shown(call: Call, found: ArchivedJob) -> dict[str, Any]:
    shown: dict[str, Any] = archived_document(found)
    if not call.sees_secrets:
        content = shown["document"]
        job = dict(content.get("job", {}))
        # Arguments and result are texts inside the text: their names cannot be judged without taking them apart.
        for name in ("args", "result"):
            if job.get(name) is not None:
                job[name] = "***"
        shown["document"] = call.masked({**content, "job": job})
    return shown
