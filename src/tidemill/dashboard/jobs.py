"""``/jobs``: search for jobs, with shareable addresses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from tidemill.client.signals import Question
from tidemill.dashboard import job_filter
from tidemill.dashboard.job_filter import FilterInput
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.estimate import eta_of, fraction_done
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter

pages = PageRoutes()

SIZE = 50
QUESTIONS = 50
LOOKS = 3
"""Maximum number of queries that a text search may use to fill one page."""

PATIENCE = 0.1
"""Seconds after which a text search starts no further query."""


@pages.get("/jobs", role=Role.VIEWER)
async def jobs(request: PageRequest) -> Response:
    """List the matching jobs."""
    filter_input = job_filter.read(request.query, request.now())
    rows: list[JobRow] = []
    following = None
    if not filter_input.wrong:
        try:
            rows, following = await request.read(look, request, filter_input)
        except BadFilter as error:
            filter_input.wrong["cursor"] = error.message
    registry = request.app.registry
    states = filter_input.query.get("status", [])
    asked: Sequence[Question] = ()
    if JobState.REVIEW_NEEDED in states and not request.identity.grants:
        # People who look for reviews also find the questions of suspended jobs.
        asked = await request.read(request.app.signals.questions, tenant=request.tenant, limit=QUESTIONS)
    return request.render(
        "jobs.html",
        422 if filter_input.wrong else 200,
        filter_input=filter_input,
        chips=filter_input.chips(),
        rows=[row(request, job) for job in rows],
        following=following,
        chosen_states=states,
        questions=asked,
        tasks=[name for name in registry.names() if request.permits("tasks.read", name)],
        queues=sorted(
            name
            for name in {task.options.queue for task in registry} | {job.queue for job in rows}
            if request.permits("queues.read", queue=name)
        ),
        tiers=job_filter.TIERS,
        show_tenant=request.tenant == ALL_TENANTS,
    )


def look(
    request: PageRequest, filter_input: FilterInput, limit: int = SIZE
) -> tuple[list[JobRow], str | None]:
    """Return one page of jobs and the cursor of the next page."""
    request.check_conditions(filter_input.where)
    rows: list[JobRow] = []
    cursor = filter_input.cursor
    clock = request.app.clock
    began = clock.monotonic()
    for _ in range(LOOKS):
        page = request.jobs_page(
            limit=limit - len(rows),
            cursor=cursor,
            sort=filter_input.sort,
            tiers=filter_input.tiers,
            tenant=request.tenant,
            # Otherwise a search would reveal masked values.
            text_in_args=request.sees_secrets,
            **filter_input.where,
        )
        rows += [request.cleared(job.row) for job in page.items]
        cursor = page.next
        full = cursor is None or len(rows) >= limit
        scans = "text" in filter_input.where or filter_input.tiers != "live"
        if full or not scans or clock.monotonic() - began > PATIENCE:
            break
    return rows, cursor


def row(request: PageRequest, job: JobRow) -> dict[str, Any]:
    """Return the table cells of a job."""
    now = request.now()
    running = job.state is JobState.RUNNING
    progress = job.progress
    return {
        "job": job,
        "took": took(job, now),
        "fraction": fraction_done(job) if running and progress and progress.fraction is not None else None,
        "message": progress.message if running and progress else None,
        "eta": eta_of(job, now),
        # The class without its module, which would fill most of the column.
        "error": f"{job.error.type.rpartition('.')[2]}: {job.error.message}" if job.error else None,
    }


def took(job: JobRow, now: datetime) -> timedelta | None:
    """Return how long the last execution took, or has taken so far."""
    if job.started_at is None or (job.finished_at is None and job.state is not JobState.RUNNING):
        return None
    return max((job.finished_at or now) - job.started_at, timedelta(0))
