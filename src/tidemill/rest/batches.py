"""Batches: list, start, show, jobs, timeline, cancel and retry."""

from __future__ import annotations

from itertools import islice
from typing import Any

from pydantic import Field
from starlette.responses import Response

from tidemill.client.flows.batches import Batch, Batches, BatchRun
from tidemill.client.flows.documents import batch_document, node_document, timeline_document
from tidemill.client.flows.run import FlowNode
from tidemill.domain.access import Role
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.flows import NodeDocument, Status, TimelineDocument, TimelineQuery, after_of
from tidemill.rest.job_models import ReasonBody
from tidemill.rest.models import (
    BodyModel,
    Cursor,
    Document,
    Instant,
    Items,
    Limit,
    Name,
    QueryModel,
    Words,
)
from tidemill.rest.routes import Routes
from tidemill.tasks.ambient import tenant_scope

routes = Routes("batches")


class BatchQuery(QueryModel):
    """Filter and page of batches."""

    name: Name | None = None
    status: Status | None = None
    archived: bool = Field(False, description="Include archived batches.")
    limit: Limit = 50
    cursor: Cursor = None


class BatchDocument(Document):
    """A batch with the numbers of its jobs."""

    id: str
    name: str = Field(examples=["import"])
    key: str | None
    tenant: str
    status: Status
    created_at: Instant
    created_by: str | None
    ended_at: Instant | None
    expires_at: Instant | None
    cancel_reason: str | None
    correlation_id: str | None
    archived_at: Instant | None
    tier: str | None = Field(description="The tier of an archived batch.")
    description: str | None
    total: int
    pending: int
    failed: int
    progress: float


class BatchJobBody(BodyModel):
    """A job of a new batch."""

    task: Name
    args: dict[str, Any] = Field(default_factory=dict)


class BatchBody(BodyModel):
    """A new batch, by names of tasks. Each callback takes one argument, `batch`."""

    name: Name
    key: str | None = Field(None, min_length=1, max_length=300)
    description: Words | None = None
    jobs: list[BatchJobBody] = Field(min_length=1, max_length=10_000)
    on_complete: Name | None = None
    on_success: Name | None = None
    on_failure: Name | None = None


class BatchJobsQuery(QueryModel):
    """Page of the jobs of a batch."""

    limit: Limit = 100
    cursor: int = Field(0, ge=0, le=10_000_000, description="The `next` of the previous page.")


async def _batch(request: ApiRequest) -> BatchRun:
    def read() -> BatchRun:
        with tenant_scope(request.tenant):
            return Batches(request.service.client).get(str(request.id()))

    return await request.read(read)


@routes.get("/api/batches", role=Role.VIEWER, query=BatchQuery, answer=Items[BatchDocument])
async def list_batches(request: ApiRequest) -> Response:
    """List batches, the newest first."""
    query: BatchQuery = request.query

    def read() -> list[dict[str, object]]:
        with tenant_scope(request.tenant):
            found = Batches(request.service.client).list(
                name=query.name,
                status=query.status,
                limit=query.limit,
                after=after_of(query.cursor),
                archived=query.archived,
            )
            return [batch_document(batch) for batch in found]

    items = await request.read(read)
    following = str(items[-1]["id"]) if len(items) == query.limit else None
    return request.page(items, following)


@routes.post("/api/batches", role=Role.OPERATOR, body=BatchBody, answer=BatchDocument, status=201)
async def start_batch(request: ApiRequest) -> Response:
    """Start a batch of jobs of named tasks."""
    body: BatchBody = request.body

    def act() -> BatchRun:
        with tenant_scope(request.home):
            return _started(request, body)

    batch = await request.act(act)
    document = await request.read(batch_document, batch)
    return request.reply(document, headers={"Location": request.where(f"/api/batches/{batch.id}")})


def _started(request: ApiRequest, body: BatchBody) -> BatchRun:
    calls = [(request.app.bound_task(job.task), job.args) for job in body.jobs]
    for task, args in calls:
        task.validate(**args)  # a batch that cannot be filled must not begin
    names = {"on_complete": body.on_complete, "on_success": body.on_success, "on_failure": body.on_failure}
    callbacks = {name: None if task is None else request.app.bound_task(task) for name, task in names.items()}
    batch = Batch(
        request.service.client,
        body.name,
        callbacks=callbacks,
        description=body.description,
        key=body.key,
        on_error="cancel",
    )
    with batch:
        for task, args in calls:
            task.enqueue(**args)
    return batch.refresh()


@routes.get("/api/batches/{id}/jobs", role=Role.VIEWER, query=BatchJobsQuery, answer=Items[NodeDocument])
async def list_batch_jobs(request: ApiRequest) -> Response:
    """List the jobs of a batch, in the order in which they were added."""
    batch = await _batch(request)
    query: BatchJobsQuery = request.query

    def read() -> list[FlowNode]:
        jobs = islice(batch.jobs(), query.cursor, query.cursor + query.limit + 1)
        return [FlowNode(job.row.details.node or job.task, job.row.details.position, job) for job in jobs]

    nodes = await request.read(read)
    following = str(query.cursor + query.limit) if len(nodes) > query.limit else None
    return request.page(request.failure_rows(map(node_document, nodes[: query.limit])), following)


@routes.get(
    "/api/batches/{id}/timeline", role=Role.VIEWER, query=TimelineQuery, answer=Items[TimelineDocument]
)
async def get_batch_timeline(request: ApiRequest) -> Response:
    """List the jobs of a batch that have begun, in the order of their starts."""
    batch = await _batch(request)
    rows = await request.read(batch.timeline, request.query.limit)
    return request.page([timeline_document(row) for row in rows], None)


@routes.get("/api/batches/{id}", role=Role.VIEWER, answer=BatchDocument)
async def get_batch(request: ApiRequest) -> Response:
    """Show a batch with the numbers of its jobs."""
    batch = await _batch(request)
    return request.reply(await request.read(batch_document, batch))


@routes.post(
    "/api/batches/{id}/cancel", role=Role.OPERATOR, body=ReasonBody, body_optional=True, answer=BatchDocument
)
async def cancel_batch(request: ApiRequest) -> Response:
    """Let no further job begin, and ask running ones to stop."""
    batch = await _batch(request)
    await request.act(batch.cancel, request.body.reason)
    return request.reply(await request.read(batch_document, batch))


@routes.post("/api/batches/{id}/retry", role=Role.OPERATOR, answer=BatchDocument)
async def retry_batch(request: ApiRequest) -> Response:
    """Run the failed jobs of a batch again."""
    batch = await _batch(request)
    await request.act(batch.retry_failed)
    return request.reply(await request.read(batch_document, batch))
