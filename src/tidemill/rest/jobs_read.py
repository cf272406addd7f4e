"""Finding jobs and reading what is known of one."""

from __future__ import annotations

from functools import partial

from pydantic import Field
from starlette.responses import Response

from tidemill.client.documents import execution_document
from tidemill.client.why import explain
from tidemill.domain.access import Role
from tidemill.rest.call import Call, encode
from tidemill.rest.job_documents import all_shown, log_line, progress, shown
from tidemill.rest.job_models import (
    ExecutionDocument,
    JobDocument,
    JobQuery,
    JobsQuery,
    LogDocument,
    ProgressDocument,
    ReasonDocument,
)
from tidemill.rest.models import MOST, Cursor, Items, Limit, Query
from tidemill.rest.problems import Problem
from tidemill.rest.routes import Routes

routes = Routes("jobs")


class PageQuery(Query):
    """Which page."""

    limit: Limit = 100
    cursor: Cursor = Field(None)


@routes.get("/api/jobs", role=Role.VIEWER, query=JobsQuery, answer=Items[JobDocument])
async def list_jobs(call: Call) -> Response:
    """The jobs that match, page by page."""
    # Whoever sees the same jobs in the same way, and asks for the same page of them, is told the same.
    asked = (call.tenant, call.sees_secrets, call.request.scope["query_string"])
    return call.encoded(await call.service.asking.ask(asked, partial(_page, call)))


def _page(call: Call) -> bytes:
    """One page of jobs, as JSON."""
    query: JobsQuery = call.query
    page = call.app.jobs.list(
        limit=query.limit,
        cursor=query.cursor,
        sort=query.sort,
        tenant=call.tenant,
        text_in_args=call.sees_secrets,  # what is masked is not to be found out by searching either
        **query.conditions(),
    )
    return encode({"items": all_shown(call, (job.facts for job in page.items)), "next": page.next})


@routes.get("/api/jobs/{id}", role=Role.VIEWER, query=JobQuery, answer=JobDocument)
async def get_job(call: Call) -> Response:
    """One job; with `logs=true` also what it wrote."""
    facts = await call.facts()
    document = shown(call, facts)
    if call.query.logs:
        lines = await call.read(call.app.store.logs, facts.id, tenant=facts.tenant, limit=MOST)
        document["logs"] = [log_line(call, entry) for _, entry in lines]
    return call.reply(document)


@routes.get("/api/jobs/{id}/progress", role=Role.VIEWER, answer=ProgressDocument)
async def get_progress(call: Call) -> Response:
    """How far a job is: status, progress, message, ETA and attempts."""
    return call.reply(progress(call, await call.facts()))


@routes.get("/api/jobs/{id}/executions", role=Role.VIEWER, answer=Items[ExecutionDocument])
async def list_executions(call: Call) -> Response:
    """Every attempt at a job, the newest first."""
    job = await call.job()
    found = await call.read(job.executions)
    return call.page([execution_document(each) for each in found[:MOST]])


@routes.get("/api/jobs/{id}/logs", role=Role.VIEWER, query=PageQuery, answer=Items[LogDocument])
async def list_logs(call: Call) -> Response:
    """What a job wrote, in order."""
    query: PageQuery = call.query
    after = query.cursor or "0"
    if not (after.isascii() and after.isdigit() and len(after) < 19):
        raise Problem(422, "bad_filter", "this cursor is not one of ours; start again without it")
    facts = await call.facts()
    lines = await call.read(
        call.app.store.logs, facts.id, tenant=facts.tenant, after=int(after), limit=query.limit
    )
    following = str(lines[-1][0]) if len(lines) == query.limit else None
    return call.page([log_line(call, entry) for _, entry in lines], following)


@routes.get("/api/jobs/{id}/children", role=Role.VIEWER, query=PageQuery, answer=Items[JobDocument])
async def list_children(call: Call) -> Response:
    """The jobs that were enqueued from this one, in the order they were."""
    query: PageQuery = call.query
    facts = await call.facts()
    page = await call.read(
        call.app.jobs.list,
        parent_id=facts.id,
        tenant=facts.tenant,
        sort="oldest",
        limit=query.limit,
        cursor=query.cursor,
    )
    return call.page(all_shown(call, (job.facts for job in page.items)), page.next)


@routes.get("/api/jobs/{id}/why", role=Role.VIEWER, answer=Items[ReasonDocument])
async def explain_job(call: Call) -> Response:
    """Why a job is not running, or what has become of it; the most important reason first."""
    facts = await call.facts()
    found = await call.read(explain, call.app.store, facts, call.now())
    return call.page([reason._asdict() for reason in found])
