"""Search of archived jobs, and archiving on demand."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.client.archive import BUDGET, MOST
from tidemill.client.documents import archived_document
from tidemill.client.stats.reports import document
from tidemill.domain.access import Role
from tidemill.domain.retention import ArchivedJob
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_models import Status
from tidemill.rest.models import BodyModel, Cursor, Document, Instant, Items, Limit, QueryModel, Seconds
from tidemill.rest.routes import Routes

routes = Routes("archive")


class ArchiveQuery(QueryModel):
    """Filter and page of archived jobs."""

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
async def search_archive(request: ApiRequest) -> Response:
    """List archived jobs."""
    query: ArchiveQuery = request.query
    where = query.model_dump(exclude={"tenant", "sort", "limit", "cursor"}, exclude_defaults=True)
    page = await request.read(
        request.app.archive.search,
        limit=query.limit,
        cursor=query.cursor,
        sort=query.sort,
        tenant=request.tenant,
        **where,
    )
    return request.page([_shown(request, job) for job in page.items], page.next)


class ArchiveBody(BodyModel):
    """Limits of one archive run."""

    limit: int = Field(MOST, ge=1, le=50_000, description="Maximum number of jobs to archive.")
    budget: float = Field(BUDGET.total_seconds(), gt=0, le=300, description="Maximum duration in seconds.")
    older_than: Seconds | None = Field(
        None, description="Minimum seconds since the job ended; default: as configured in the policies."
    )


class PolicyRunDocument(Document):
    """Result of one policy. `error` is the code of the error that stopped it early."""

    policy: str
    tier: str
    archived: int
    verified: int
    failed: int = Field(description="Jobs whose copy failed verification; they are kept.")
    changed: int = Field(description="Jobs that were reopened during the run; they are kept.")
    bytes: int
    statuses: dict[str, int] = Field(description="Archived jobs by status.")
    more: bool
    took: float
    error: str | None


class ArchiveRunDocument(Document):
    """Result of an archive run; ``more`` is true if more jobs are due."""

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
async def run_archive(request: ApiRequest) -> Response:
    """Archive the jobs that are due. Each copy is read back before the original is deleted. One run at a time per store."""
    body: ArchiveBody = request.body
    done = await request.act(
        request.app.archive.run,
        older_than=None if body.older_than is None else timedelta(seconds=body.older_than),
        limit=body.limit,
        budget=timedelta(seconds=body.budget),
    )
    return request.reply(document(done))


def _shown(request: ApiRequest, archived: ArchivedJob) -> dict[str, Any]:
    shown: dict[str, Any] = archived_document(archived)
    if not request.sees_secrets:
        content = shown["document"]
        job = dict(content.get("job", {}))
        # Arguments and result are JSON strings inside the document, so masking cannot see the names in them.
        for name in ("args", "result"):
            if job.get(name) is not None:
                job[name] = "***"
        shown["document"] = request.masked({**content, "job": job})
    return shown
