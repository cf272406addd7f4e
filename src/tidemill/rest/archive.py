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
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.retention import ArchivedJob
from tidemill.errors import BadFilter
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_models import Reference, Status
from tidemill.rest.models import MOST as MOST_IDS
from tidemill.rest.models import BodyModel, Cursor, Document, Instant, Items, Limit, QueryModel, Seconds
from tidemill.rest.routes import Routes

routes = Routes("archive")

_INSIDE = "Inside the documents, so a page reads up to 2,000 of them and may hold fewer items than requested."


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
    reference: str | None = Field(
        None, pattern=r"^[^:]+:.*$", description="As `kind:id`. " + _INSIDE, examples=["user:42"]
    )
    tag: str | None = Field(None, description=_INSIDE)
    metadata: list[Annotated[str, Field(pattern=r"^[^=]+=.*$")]] = Field(
        [], max_length=20, description="As `key=value`; may be repeated. " + _INSIDE
    )
    tiers: list[Annotated[str, Field(min_length=1)]] = Field(
        [], max_length=20, description="Names of tiers, or `tables`; default: all. May be repeated."
    )
    sort: Literal["newest", "oldest"] = "newest"
    limit: Limit = 100
    cursor: Cursor = None

    def conditions(self) -> dict[str, Any]:
        """Return the arguments of ``app.archive.search``."""
        left_out = {"tenant", "sort", "limit", "cursor", "tiers"}
        conditions = self.model_dump(exclude=left_out, exclude_defaults=True)
        if self.reference is not None:
            kind, _, id = self.reference.partition(":")
            conditions["reference"] = (kind, id)
        if self.metadata:
            conditions["metadata"] = dict(pair.split("=", 1) for pair in self.metadata)
        return conditions


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
async def search_archive(call: ApiRequest) -> Response:
    """List archived jobs."""
    query: ArchiveQuery = call.query
    page = await call.read(
        call.app.archive.search,
        limit=query.limit,
        cursor=query.cursor,
        sort=query.sort,
        tiers=query.tiers or "all",
        tenant=call.tenant,
        **query.conditions(),
    )
    return call.page([_shown(call, job) for job in page.items], page.next)


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
async def run_archive(call: ApiRequest) -> Response:
    """Archive the jobs that are due. Each copy is read back before the original is deleted. One run at a time per store."""
    body: ArchiveBody = call.body
    done = await call.act(
        call.app.archive.run,
        older_than=None if body.older_than is None else timedelta(seconds=body.older_than),
        limit=body.limit,
        budget=timedelta(seconds=body.budget),
    )
    return call.reply(document(done))


class RestoreBody(BodyModel):
    """Archived jobs to restore."""

    ids: list[UUID] = Field(min_length=1, max_length=MOST_IDS)
    retry: bool = Field(False, description="Also give the jobs another chain of attempts.")


class RestoredDocument(Document):
    """Result of restoring jobs: each id is in one of the first four lists."""

    restored: list[UUID]
    live: list[UUID] = Field(description="A live job has this id; nothing was changed.")
    missing: list[UUID] = Field(description="No tier has this job.")
    damaged: list[UUID] = Field(description="The document differs from its fingerprint.")
    retried: list[UUID] = Field(description="Restored jobs that are pending again.")


@routes.post("/api/archive/restore", role=Role.ADMIN, body=RestoreBody, answer=RestoredDocument)
async def restore_jobs(call: ApiRequest) -> Response:
    """Put archived jobs with their executions and logs back into the live tables."""
    body: RestoreBody = call.body
    done = await call.act(call.app.archive.restore, body.ids, retry=body.retry, tenant=call.tenant)
    return call.reply(document(done))


class EraseBody(BodyModel):
    """Jobs to erase. All conditions must match."""

    ids: list[UUID] = Field([], max_length=MOST_IDS)
    reference: Reference | None = Field(None, description="As `kind:id`, or as a pair.")
    metadata: dict[str, str] = Field({})
    whole_tenant: bool = Field(
        False, description="Erase every job of the tenant that the query parameter `tenant` or the key names."
    )
    dry_run: bool = Field(True, description="Only count; send false to erase.")


class ErasedDocument(Document):
    """Result of an erasure."""

    jobs: int
    tiers: dict[str, int] = Field(description="Copies by tier; `live` are rows of the live tables.")
    dry_run: bool


@routes.post("/api/archive/erase", role=Role.ADMIN, body=EraseBody, answer=ErasedDocument)
async def erase_jobs(call: ApiRequest) -> Response:
    """Erase ended jobs in every tier for good, with their executions, logs, documents and file contents.

    Without `dry_run: false`, this only counts. The audit log keeps the ids and the counts. A job that has not ended is refused
    with 409, and nothing is erased.
    """
    body: EraseBody = call.body
    conditions = body.model_dump(exclude={"dry_run", "whole_tenant"}, exclude_defaults=True)
    if not conditions and (not body.whole_tenant or call.tenant == ALL_TENANTS):
        raise BadFilter("give ids, a reference, metadata, or whole_tenant together with a tenant")
    done = await call.act(call.app.archive.erase, dry_run=body.dry_run, tenant=call.tenant, **conditions)
    return call.reply(document(done))


def _shown(call: ApiRequest, archived: ArchivedJob) -> dict[str, Any]:
    shown: dict[str, Any] = archived_document(archived)
    if not call.sees_secrets:
        content = shown["document"]
        job = dict(content.get("job", {}))
        # Arguments and result are JSON strings inside the document, so masking cannot see the names in them.
        for name in ("args", "result"):
            if job.get(name) is not None:
                job[name] = "***"
        shown["document"] = call.masked({**content, "job": job})
    return shown
