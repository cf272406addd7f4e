"""``/jobs/{id}``: details of one live or archived job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from tidemill.client.documents import plain
from tidemill.client.flows.api import Flows
from tidemill.client.flows.run import FlowRun
from tidemill.client.jobs.handle import Job as Handle
from tidemill.client.signals import Question
from tidemill.dashboard import argument_form
from tidemill.dashboard.form_state import FormState
from tidemill.dashboard.job_details import shown
from tidemill.dashboard.job_tree import CHILDREN, job_tree
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.timelines import MOST
from tidemill.dashboard.waterfall import waterfall
from tidemill.domain import tracebacks
from tidemill.domain.access import Role
from tidemill.domain.filters import Page
from tidemill.domain.job import LEVELS, Execution, JobRow, LogEntry, levels_from
from tidemill.domain.signals import StoredSignal
from tidemill.domain.states import ENDED
from tidemill.errors import FlowNotFound, JobNotFound
from tidemill.tasks.ambient import tenant_scope
from tidemill.web.downloads import arguments_of, result_of

pages = PageRoutes()

LINES = 200
KIN = 20
STAGE_LINES = 1_000
STEPS = 200  # recorded steps that the page lists
_END = 2**62
"""A log position after every line."""


@pages.get("/jobs/{id}", role=Role.VIEWER)
async def job(request: PageRequest) -> Response:
    """Show one live or archived job."""
    try:
        job = await request.job()
    except JobNotFound:
        return request.render("job_gone.html", 404, id=request.id())
    before = request.query.whole_number("before", _END, most=_END)
    values = await request.read(_look, request, job, before)
    return request.render("job.html", **{**shown(request, job.row), **values})


@pages.get("/jobs/{id}/args", role=Role.OPERATOR)
async def arguments(request: PageRequest) -> Response:
    """Download the arguments of a job."""
    return arguments_of(request, await request.job_row())


@pages.get("/jobs/{id}/value", role=Role.OPERATOR)
async def value(request: PageRequest) -> Response:
    """Download the result of a job."""
    return result_of(request, await request.job_row())


def _look(request: PageRequest, job: Handle[Any], before: int) -> dict[str, Any]:
    """Run all queries of the page in sequence on one thread. Each one returns a bounded number of rows."""
    inspection, now, row = request.inspection, request.now(), job.row
    executions = request.cleared_executions(job.executions())
    reads_lines = request.permits("jobs.logs", row.task, row.queue)
    shows_payload = request.permits("jobs.payload", row.task, row.queue)
    read = _lines(request, job, before) if reads_lines else []
    lines = _searched(request, read)
    steps = job.steps()[:STEPS] if shows_payload and not request.hides_arguments else []
    details = row.details
    children = request.jobs_page(parent_id=row.id, tenant=request.tenant, sort="oldest", limit=CHILDREN)
    related: Page[Handle[Any]] = Page([])
    if details.correlation_id is not None:
        # Children inherit the correlation, so that the oldest of these jobs are often ancestors of this one.
        related = request.jobs_page(
            correlation_id=details.correlation_id, tenant=row.tenant, sort="oldest", limit=KIN
        )
    tree = job_tree(
        request,
        row,
        [child.row for child in children.items],
        {other.id: other.row for other in related.items},
        now,
        has_more=children.next is not None,
    )
    in_tree = tree.ids()
    names = {worker.id: worker.name for worker in inspection.workers()}
    asked: Sequence[Question] = ()
    unread: Sequence[StoredSignal] = ()
    if row.state not in ENDED and row.archived_at is None:
        asked = request.app.signals.questions(job=row.id, tenant=row.tenant)
        unread = request.app.signals.list(row.id, tenant=row.tenant, limit=KIN)
    return {
        "question": asked[0] if asked else None,
        "question_fields": argument_form.arguments_of(asked[0].schema) if asked else [],
        "answer_form": FormState({}),
        "unread": [
            (signal, "***" if request.hides_arguments else request.masked(plain(signal.payload)))
            for signal in unread
        ],
        "made_by": inspection.origin(row),
        "why": [
            reason._replace(text=request.masked_names(reason.text)) for reason in inspection.why(row, now)
        ],
        "executions_left_out": max(len(executions) - MOST, 0),
        "steps": steps,
        "waterfall": waterfall(
            row,
            executions,
            _marks(request, job) if reads_lines else [],
            job.stages(),
            steps,
            [child.row for child in reversed(children.items)],
            now,
        ),
        **_attempt(request, executions),
        "lines": [
            (position, entry, {} if request.hides_arguments else request.masked(entry.details))
            for position, entry in lines
        ],
        "older": read[0][0] if len(read) == LINES else None,
        "log_level": request.query.get("level") or "",
        "log_text": request.query.get("find") or "",
        "levels": LEVELS,
        "from_the_end": before == _END,
        "follows": before == _END and row.state not in ENDED and row.archived_at is None,
        "tree": tree,
        "flow": _flow(request, row),
        "related": [other.row for other in related.items if other.id not in in_tree],
        "related_more": related.next is not None,
        "workers": names,
    }


def _attempt(request: PageRequest, executions: Sequence[Execution]) -> dict[str, Any]:
    """Return the execution that the page opens, by default the last one, and its traceback."""
    chosen = request.query.whole_number("attempt", 0, most=_END)
    ordered = sorted(executions, key=lambda execution: execution.number)
    attempt = next((execution for execution in ordered if execution.number == chosen), None)
    attempt = attempt or (ordered[-1] if ordered else None)
    trace = attempt.error.traceback if attempt is not None and attempt.error is not None else None
    return {
        "attempt": attempt,
        "chosen": chosen,
        "trace": tracebacks.parts(trace) if trace else [],
        "place": tracebacks.users_place(trace) if trace else None,
    }


def _marks(request: PageRequest, job: Handle[Any]) -> list[LogEntry]:
    """Return the last log lines, from which the stages of all attempts are read."""
    if job.archived_at is not None:
        return list(job.logs())
    return [entry for _, entry in request.inspection.logs(job.row, before=_END, limit=STAGE_LINES)]


def _searched(request: PageRequest, lines: Sequence[tuple[int, LogEntry]]) -> Sequence[tuple[int, LogEntry]]:
    """Return the lines of the chosen attempt, level and text."""
    number = request.query.whole_number("attempt", 0, most=_END)
    level, text = request.query.get("level") or "", (request.query.get("find") or "").lower()
    allowed = levels_from(level) if level in LEVELS else None
    return [
        (position, entry)
        for position, entry in lines
        if (not number or entry.number == number)
        and (allowed is None or entry.level in allowed)
        and (not text or text in entry.message.lower())
    ]


def _flow(request: PageRequest, row: JobRow) -> FlowRun | None:
    """The flow of a node; None for a member of a batch, and for a job outside of flows."""
    if row.details.flow_id is None or not request.permits("flows.read"):
        return None
    try:
        with tenant_scope(row.tenant):
            return Flows(request.service.client).get(row.details.flow_id)
    except FlowNotFound:
        return None


def _lines(request: PageRequest, job: Handle[Any], before: int) -> Sequence[tuple[int, LogEntry]]:
    """Return the last log lines before a position. For an archived job, the position is the line number."""
    if job.archived_at is not None:
        return [line for line in enumerate(job.logs(), 1) if line[0] < before][-LINES:]
    return request.inspection.logs(job.row, before=before, limit=LINES)
