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
from tidemill.domain.masks import hidden, masked_unique_key
from tidemill.domain.retention import ArchivedJob
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_models import Status
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
async def search_archive(request: ApiRequest) -> Response:
    """List archived jobs."""
    query: ArchiveQuery = request.query
    conditions = query.conditions()
    request.check_conditions(conditions)
    page = await request.read(
        request.app.archive.search,
        limit=query.limit,
        cursor=query.cursor,
        sort=query.sort,
        tiers=query.tiers or "all",
        tenant=request.tenant,
        **conditions,
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
    flows: int = Field(description="Flows and batches that were archived with all their jobs.")
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


class RunRecordDocument(Document):
    """One of the latest archive runs."""

    at: Instant
    took: float = Field(description="Seconds.")
    archived: int
    failed: int
    errors: int = Field(description="Policies that ended with an error.")
    more: bool


class PolicyDocument(Document):
    """A retention policy in effect, with its totals."""

    name: str
    default: bool
    states: list[str]
    tasks: list[str] = Field(description="Names or patterns; empty for all.")
    tenants: list[str] = Field(description="Empty for all.")
    from_tier: str | None = Field(description="Null for the live tables.")
    to: str | None = Field(description="Store of the copies; null if jobs are deleted.")
    tier: str | None
    max_age: float | None = Field(description="Seconds since the end.")
    max_count: int | None
    delete_from_source: bool
    batch: int
    comment: str
    archived: int
    failed: int
    bytes: int
    last_at: Instant | None
    mismatch_at: Instant | None = Field(description="Since when copies differ from what was written.")
    overdue_since: Instant | None


class RetentionDocument(Document):
    """The state of retention."""

    enabled: bool
    interval: float = Field(description="Seconds.")
    running: bool
    last: RunRecordDocument | None
    next_at: Instant | None
    oldest_ended_at: Instant | None
    overdue: bool
    runs: list[RunRecordDocument] = Field(description="The latest first.")
    policies: list[PolicyDocument]


@routes.get("/api/archive", role=Role.VIEWER, answer=RetentionDocument, everywhere=True)
async def get_retention(request: ApiRequest) -> Response:
    """Show whether retention is on, its latest and next run, and its policies."""
    return request.reply(document(await request.read(request.app.archive.status)))


class ConsideredDocument(Document):
    """A policy that was considered for a job."""

    policy: str
    applies: bool
    reason: str
    comment: str


class RetentionChoiceDocument(Document):
    """Which policy governs a job, when the job is due, and where it goes."""

    id: UUID
    task: str
    tenant: str
    state: Status
    tier: str
    ended_at: Instant | None
    considered: list[ConsideredDocument]
    policy: str | None
    due_at: Instant | None = Field(description="When the job is due by its age.")
    max_count: int | None
    over_count: bool = Field(description="Whether enough newer jobs have ended.")
    to: str | None
    to_tier: str | None
    text: list[str] = Field(description="The same for people.")


@routes.get("/api/archive/explain/{id}", role=Role.VIEWER, answer=RetentionChoiceDocument)
async def explain_retention(request: ApiRequest) -> Response:
    """Explain which retention policy governs a job."""
    job = await request.job()
    choice = await request.read(request.app.archive.explain, job.id, tenant=job.tenant)
    considered = [item._asdict() for item in choice.considered]
    text = choice.lines(request.app.clock.now())
    return request.reply({**document(choice), "considered": considered, "text": text})


def _shown(request: ApiRequest, archived: ArchivedJob) -> dict[str, Any]:
    shown: dict[str, Any] = archived_document(archived)
    if request.hides_arguments:
        shown["document"] = hidden(shown["document"])
    elif not request.sees_secrets:
        content = shown["document"]
        job = dict(content.get("job", {}))
        # Arguments and result are JSON strings inside the document, so masking cannot see the names in them.
        for name in ("args", "result"):
            if job.get(name) is not None:
                job[name] = "***"
        if job.get("unique_key") is not None:
            job["unique_key"] = masked_unique_key(job["unique_key"])
        shown["document"] = request.masked_names(request.masked({**content, "job": job}))
    return shown
