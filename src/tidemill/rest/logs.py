"""Search of log lines."""

from __future__ import annotations

from uuid import UUID

from pydantic import Field
from starlette.responses import Response

from tidemill.domain.access import Role
from tidemill.rest.api_request import ApiRequest
from tidemill.rest.job_documents import log_line
from tidemill.rest.job_lookup import Level, PageQuery
from tidemill.rest.job_models import LogDocument, Text
from tidemill.rest.models import Instant, Items
from tidemill.rest.routes import Routes

routes = Routes("logs")


class LogSearchQuery(PageQuery):
    """Filter and page of log lines of all jobs."""

    level: Level | None = Field(None, description="Only lines of this level and above.")
    task: list[str] = Field([], description="Only lines of jobs of these tasks; repeatable.")
    job: UUID | None = None
    since: Instant | None = Field(None, description="Lines from this instant on.")
    until: Instant | None = Field(None, description="Lines before this instant.")
    text: Text | None = Field(
        None,
        description="Text in the message; case-insensitive. A page may hold fewer lines than `limit`, or none, and still "
        "have a `next`.",
    )


class FoundLineDocument(LogDocument):
    """One log line and its job."""

    job_id: UUID
    task: str
    queue: str
    tenant: str


@routes.get("/api/logs", role=Role.VIEWER, query=LogSearchQuery, answer=Items[FoundLineDocument])
async def search_logs(request: ApiRequest) -> Response:
    """Search the log lines of all jobs, newest first. Lines of archived jobs are not searched."""
    query: LogSearchQuery = request.query
    page = await request.read(
        request.app.jobs.search_logs,
        query.text,
        level=query.level,
        task=query.task,
        job=query.job,
        since=query.since,
        until=query.until,
        tenant=request.tenant,
        limit=query.limit,
        cursor=query.cursor,
    )
    items = [
        log_line(request, line.entry)
        | {"job_id": str(line.entry.job_id), "task": line.task, "queue": line.queue, "tenant": line.tenant}
        for line in page.items
    ]
    return request.page(items, page.next)
