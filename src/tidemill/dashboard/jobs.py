"""``/jobs``: search for jobs, with shareable addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from starlette.responses import RedirectResponse, Response

from tidemill.client.documents import plain
from tidemill.client.signals import Question
from tidemill.dashboard import job_details, job_filter, jobs_view
from tidemill.dashboard.formats import on_one_line
from tidemill.dashboard.job_filter import TABS, FilterInput
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.search_box import FACETS, BoxInput, read_box
from tidemill.domain.access import Role
from tidemill.domain.decide import Action, expected
from tidemill.domain.estimate import eta_of, fraction_done
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.domain.large_values import is_reference
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import BadFilter

pages = PageRoutes()

SIZE = 50
QUESTIONS = 50
LOOKS = 3
"""Maximum number of queries that a text search may use to fill one page."""

PATIENCE = 0.05
"""Seconds after which a text search starts no further query."""

COUNTED = 1_000
"""With conditions, the jobs of a tab are counted up to this number, and without them while all are being counted."""

COUNT_PATIENCE = 0.1
"""Seconds that a page waits for its counts."""


@pages.get("/jobs", role=Role.VIEWER)
async def jobs(request: PageRequest) -> Response:
    """List the matching jobs."""
    filter_input = job_filter.read(request.query, request.now())
    box = read_box(request.query.get("q") or "")
    if request.query.get("q") and box.wrong is None:
        return RedirectResponse(_with_box(request, filter_input, box), 303)
    if box.wrong is not None:
        filter_input.wrong["q"] = box.wrong
    rows: list[JobRow] = []
    following = None
    if not filter_input.wrong:
        try:
            rows, following = await request.read(look, request, filter_input)
        except BadFilter as error:
            filter_input.wrong[str(error.details.get("field") or "cursor")] = error.message
    states = filter_input.query.get("status", [])
    asked: Sequence[Question] = ()
    if JobState.REVIEW_NEEDED in states and not request.identity.grants:
        # People who look for reviews also find the questions of suspended jobs.
        asked = await request.read(request.app.signals.questions, tenant=request.tenant, limit=QUESTIONS)
    counts, counted = ({}, None) if filter_input.wrong else await _counts(request, filter_input)
    return request.render(
        "jobs.html",
        422 if filter_input.wrong else 200,
        filter_input=filter_input,
        typed=request.query.get("q") or "",
        chips=filter_input.chips(),
        rows=[row(request, job) for job in rows],
        following=following,
        questions=asked,
        tabs=list(TABS),
        counts=counts,
        counted=counted,
        facets=FACETS,
        columns=jobs_view.columns(request),
        all_columns=jobs_view.COLUMNS,
        views=jobs_view.views(request),
        here_query=jobs_view.query_here(request),
        panel=await _panel(request),
        tiers=job_filter.TIERS,
        show_tenant=request.tenant == ALL_TENANTS,
        **_names(request, rows),
    )


def _names(request: PageRequest, rows: list[JobRow]) -> dict[str, list[str]]:
    """Return the names that the search box completes."""
    registry = request.app.registry
    queues = {task.options.queue for task in registry} | {job.queue for job in rows}
    errors = {job.error.type.rpartition(".")[2] for job in rows if job.error is not None}
    return {
        "tasks": [name for name in registry.names() if request.permits("tasks.read", name)],
        "queues": sorted(name for name in queues if request.permits("queues.read", queue=name)),
        "errors": sorted(errors),
    }


def _with_box(request: PageRequest, filter_input: FilterInput, box: BoxInput) -> str:
    """Return the address with the conditions of the search box added to those that it already has."""
    query: dict[str, Any] = {name: list(values) for name, values in filter_input.query.items()}
    for name, value in box.pairs:
        if name == "tenant":
            query[name] = value
        elif name in job_filter.SEVERAL:
            query[name] = [*query.get(name, []), value]
        else:
            query[name] = [value]
    order = "oldest" if filter_input.sort == "oldest" else None
    tiers = filter_input.tiers if filter_input.tiers != "live" else None
    return request.url("/jobs", **{"sort": order, "tiers": tiers, **query})


async def _counts(request: PageRequest, filter_input: FilterInput) -> tuple[dict[str, int], int | None]:
    """Count the jobs of each tab, up to a number or all; not for conditions that cannot be counted.

    A page that is loaded does not wait for slow counts: they are in the next refresh.
    """
    if filter_input.scans or request.identity.grants:
        return {}, None
    where = {name: value for name, value in filter_input.where.items() if name != "status"}
    # An age in the filter is a new instant in each request, but the same condition.
    asked = {name: values for name, values in filter_input.query.items() if name != "status"}
    about = ("tabs", request.tenant, repr(sorted(asked.items())))
    counting = request.cached(about, _count_some if where else _count_all, request, where)
    if request.is_live:
        return await counting, COUNTED if where else None
    try:
        async with asyncio.timeout(COUNT_PATIENCE):
            return await counting, COUNTED if where else None
    except TimeoutError:
        return ({} if where else await request.read(_count_some, request, where)), COUNTED


def _count_all(request: PageRequest, _: dict[str, Any]) -> dict[str, int]:
    standing = {row.status.value: row.jobs for row in request.app.stats.by_status(tenant=request.tenant)}
    by_tab = {name: sum(standing.get(state, 0) for state in own) for name, own in TABS.items()}
    return by_tab | {"all": sum(standing.values())}


def _count_some(request: PageRequest, where: dict[str, Any]) -> dict[str, int]:
    counts = request.app.jobs.counts
    by_tab = {
        name: sum(counts(most=COUNTED + 1, tenant=request.tenant, **where, status=list(own)).values())
        for name, own in TABS.items()
        if own
    }
    return {"all": sum(by_tab.values())} | by_tab


async def _panel(request: PageRequest) -> dict[str, Any] | None:
    """Return what the side panel shows of the job that the address names."""
    try:
        id = UUID(request.query.get("job") or "")
    except ValueError:
        return None
    found = await request.read(request.inspection.live_jobs, [id], tenant=request.tenant)
    if not found or not request.permits("jobs.read", found[0].task, found[0].queue):
        return {"job": None, "id": id}
    why = await request.read(request.inspection.why, found[0], request.now())
    texts = [request.masked_names(reason.text) for reason in why]
    return {**job_details.shown(request, found[0]), "why": texts}


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
        if full or not filter_input.scans or clock.monotonic() - began > PATIENCE:
            break
    return rows, cursor


def row(request: PageRequest, job: JobRow) -> dict[str, Any]:
    """Return the table cells of a job."""
    now = request.now()
    running = job.state is JobState.RUNNING
    progress = job.progress
    return {
        "job": job,
        "args": _args(request, job),
        "age": _age(job),
        "took": job_details.took(job, now),
        "fraction": fraction_done(job) if running and progress and progress.fraction is not None else None,
        "message": progress.message if running and progress else None,
        "eta": eta_of(job, now),
        # The class without its module, which would fill most of the column.
        "error": f"{job.error.type.rpartition('.')[2]}: {job.error.message}" if job.error else None,
        "acts": _acts(job),
    }


def _args(request: PageRequest, job: JobRow) -> str:
    """Return the arguments in one line, without the braces and the quotes of the names."""
    if not job.args or is_reference(job.args):
        return ""
    args = request.masked(plain(job.args))
    if not isinstance(args, dict):
        return str(args)
    return " ".join(f"{name}={on_one_line(value, 60)}" for name, value in args.items())[:160]


def _age(job: JobRow) -> tuple[str, datetime | None]:
    """Return the one time that matters in this state, and its name."""
    if job.state in ENDED:
        return "finished", job.finished_at
    if job.state is JobState.SCHEDULED:
        return "due", job.run_at
    if job.state in HELD and job.started_at is not None:
        return "started", job.started_at
    return "created", job.created_at


def _acts(job: JobRow) -> list[str]:
    """Return the actions of a row."""
    if job.archived_at is not None:
        return []
    acts = []
    if job.state in expected(Action.RETRY):
        acts.append("retry")
    if job.state in expected(Action.RUN_NOW):
        acts.append("run-now")
    if job.state in expected(Action.CANCEL) | HELD:
        acts.append("cancel")
    return acts
