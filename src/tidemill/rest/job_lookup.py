"""Search for jobs, and details of one job."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import execution_document, stage_document, step_document
from tidemill.client.jobs.handle import Job
from tidemill.domain.access import Role
from tidemill.domain.job import LogEntry
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_documents import all_shown, log_line, progress, shown
from tidemill.rest.job_models import (
    ExecutionDocument,
    JobDocument,
    JobQuery,
    JobsQuery,
    LogDocument,
    ProgressDocument,
    ReasonDocument,
    StageDocument,
    StepDocument,
)
from tidemill.rest.models import MOST, Cursor, Items, Limit, QueryModel
from tidemill.rest.routes import Routes
from tidemill.web.downloads import arguments_of, result_of
from tidemill.web.problems import Problem
from tidemill.web.responses import encode

routes = Routes("jobs")


Level = Literal["debug", "info", "warning", "error"]


class PageQuery(QueryModel):
    """Page of a list."""

    limit: Limit = 100
    cursor: Cursor = Field(None)


@routes.get("/api/jobs", role=Role.VIEWER, query=JobsQuery, answer=Items[JobDocument])
async def list_jobs(request: ApiRequest) -> Response:
    """List jobs."""
    # Requests with the same tenant, masking and query can share one response.
    identity = request.identity
    key = (request.tenant, request.sees_secrets, identity.grants, request.http.scope["query_string"])
    return request.encoded(await request.service.list_throttle.ask(key, partial(_page, request)))


def _page(request: ApiRequest) -> bytes:
    """Return one page of jobs as JSON."""
    query: JobsQuery = request.query
    where = query.conditions()
    request.check_conditions(where)
    page = request.jobs_page(
        limit=query.limit,
        cursor=query.cursor,
        sort=query.sort,
        tiers=query.tiers or None,
        tenant=request.tenant,
        # Otherwise a search would reveal masked values.
        text_in_args=request.sees_secrets,
        **where,
    )
    return encode({"items": all_shown(request, (job.row for job in page.items)), "next": page.next})


@routes.get("/api/jobs/{id}", role=Role.VIEWER, query=JobQuery, answer=JobDocument)
async def get_job(request: ApiRequest) -> Response:
    """One job; with `logs=true` also what it wrote."""
    job = await request.job()
    document = shown(request, job.row)
    if request.query.logs:
        document["logs"] = [
            log_line(request, entry) for _, entry in await request.read(_lines, request, job, 0, MOST)
        ]
    return request.reply(document)


@routes.get("/api/jobs/{id}/args", role=Role.OPERATOR, answer=Any)
async def get_arguments(request: ApiRequest) -> Response:
    """Download a job's arguments as JSON, also those that are too large for the job's document."""
    return arguments_of(request, await request.job_row())


@routes.get("/api/jobs/{id}/value", role=Role.OPERATOR, answer=Any)
async def get_value(request: ApiRequest) -> Response:
    """Download a job's return value as JSON, or its output for a reviewer; also one that is too large for the job's document."""
    return result_of(request, await request.job_row())


@routes.get("/api/jobs/{id}/progress", role=Role.VIEWER, answer=ProgressDocument)
async def get_progress(request: ApiRequest) -> Response:
    """Get a job's status, progress, message, ETA and attempts."""
    return request.reply(progress(request, await request.job_row()))


class ExecutionsQuery(QueryModel):
    """Which attempts of a job to list."""

    failed: bool = Field(False, description="Only those that failed, timed out or crashed.")


@routes.get(
    "/api/jobs/{id}/executions", role=Role.VIEWER, query=ExecutionsQuery, answer=Items[ExecutionDocument]
)
async def list_executions(request: ApiRequest) -> Response:
    """List the attempts of a job, newest first."""
    query: ExecutionsQuery = request.query
    job = await request.job()
    executions = request.cleared_executions(await request.read(partial(job.executions, failed=query.failed)))
    return request.page([execution_document(execution) for execution in executions[:MOST]])


@routes.get("/api/jobs/{id}/steps", role=Role.OPERATOR, answer=Items[StepDocument])
async def list_steps(request: ApiRequest) -> Response:
    """List the recorded steps of a durable function, by name, with their results."""
    job = await request.job()
    steps = await request.read(job.steps)
    return request.page([step_document(step) for step in steps[:MOST]])


@routes.get("/api/jobs/{id}/stages", role=Role.VIEWER, answer=Items[StageDocument])
async def list_stages(request: ApiRequest) -> Response:
    """List the stages of a job with their states and times, the declared ones of its task in order."""
    job = await request.job()
    stages = await request.read(job.stages)
    return request.page([stage_document(stage) for stage in stages[:MOST]])


class LogsQuery(PageQuery):
    """Filter and page of log lines."""

    level: Level | None = Field(None, description="Only lines of this level and above.")


@routes.get("/api/jobs/{id}/logs", role=Role.VIEWER, query=LogsQuery, answer=Items[LogDocument])
async def list_logs(request: ApiRequest) -> Response:
    """List the log lines of a job in order."""
    query: LogsQuery = request.query
    after = query.cursor or "0"
    if not (after.isascii() and after.isdigit() and len(after) < 19):
        raise Problem(422, "bad_filter", "invalid cursor; start again without it")
    lines = await request.read(_lines, request, await request.job(), int(after), query.limit, query.level)
    following = str(lines[-1][0]) if len(lines) == query.limit else None
    return request.page([log_line(request, entry) for _, entry in lines], following)


def _lines(
    request: ApiRequest, job: Job[Any], after: int, limit: int, level: str | None = None
) -> Sequence[tuple[int, LogEntry]]:
    """Return log lines after a position. For an archived job, the position is the line number."""
    if job.archived_at is not None:
        return list(enumerate(job.logs(level=level), 1))[after : after + limit]
    return request.inspection.logs(job.row, after=after, level=level, limit=limit)


@routes.get("/api/jobs/{id}/children", role=Role.VIEWER, query=PageQuery, answer=Items[JobDocument])
async def list_children(request: ApiRequest) -> Response:
    """List the jobs that this job enqueued, oldest first."""
    query: PageQuery = request.query
    parent = await request.job_row()
    page = await request.read(
        request.jobs_page,
        parent_id=parent.id,
        tenant=parent.tenant,
        sort="oldest",
        limit=query.limit,
        cursor=query.cursor,
    )
    return request.page(all_shown(request, (job.row for job in page.items)), page.next)


@routes.get("/api/jobs/{id}/why", role=Role.VIEWER, answer=Items[ReasonDocument])
async def explain_job(request: ApiRequest) -> Response:
    """Explain why a job is not running, or how it ended; most important reason first."""
    row = await request.job_row()
    reasons = await request.read(request.inspection.why, row, request.now())
    return request.page([request.masked_names(reason._asdict()) for reason in reasons])
