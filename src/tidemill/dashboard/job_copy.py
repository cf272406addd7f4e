"""``/jobs/{id}/again``: enqueue a copy of a job.

The user may change the arguments and the time. The original job is not changed.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tidemill.client.documents import without_seals
from tidemill.client.enqueue.options import NO_OPTIONS
from tidemill.dashboard.form_state import refuse_to_look
from tidemill.dashboard.formats import as_json
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.job import HIGHEST_PRIORITY, LOWEST_PRIORITY, JobRow, NewJob
from tidemill.domain.permissions import ActTarget
from tidemill.errors import BadArguments, PayloadTooLarge, TidemillError, UsageError
from tidemill.web.text_parsers import read_number, read_object, read_span

pages = PageRoutes()


@pages.get("/jobs/{id}/again", role=Role.OPERATOR)
async def edit(request: PageRequest) -> Response:
    """Show the form with the values of the original job."""
    refuse_to_look(request)
    row = await _original(request)
    typed = {
        # Sealed values belong to the first job; the user enters secrets again.
        "args": as_json(without_seals(row.args)),
        "queue": row.queue,
        "priority": str(row.priority),
        "delay": "",
    }
    return _form(request, row, typed, {})


@pages.post("/jobs/{id}/again", role=Role.OPERATOR)
async def enqueue_again(request: PageRequest) -> Response:
    """Enqueue the copy, or show the form again with errors next to the fields."""
    row = await _original(request)
    request.check(row.task, request.form.get("queue") or row.queue)
    typed = {name: request.form.get(name) or "" for name in ("args", "queue", "priority", "delay")}
    options: dict[str, Any] = {"tenant": row.tenant, "queue": typed["queue"] or row.queue}
    wrong: dict[str, str] = {}
    try:
        read_object(typed["args"] or "{}")
    except ValueError as error:
        wrong["args"] = str(error)
    try:
        options["priority"] = read_number(typed["priority"] or "0", LOWEST_PRIORITY, HIGHEST_PRIORITY)
    except ValueError as error:
        wrong["priority"] = str(error)
    try:
        if typed["delay"]:
            options["delay"] = read_span(typed["delay"])
    except ValueError as error:
        wrong["delay"] = str(error)
    if not wrong:
        details = row.details
        options |= {"tags": details.tags, "metadata": details.metadata, "reference": details.reference}
        options["correlation_id"] = details.correlation_id
        try:
            made = await request.act(_enqueue, request, row, typed["args"] or "{}", options)
        except TidemillError as error:
            wrong = _places(error)
        else:
            words = (
                "Enqueued as a new job."
                if isinstance(made, NewJob)
                else f"Job {made.id} holds its unique key."
            )
            return request.back(f"/jobs/{made.id}", words, good=isinstance(made, NewJob))
    return _form(request, row, typed, wrong)


async def _original(request: PageRequest) -> JobRow:
    """Return the job to copy. A copy repeats its arguments, so the user must be allowed to see them."""
    row = await request.job_row()
    if not request.permits("jobs.arguments", row.task, row.queue):
        request.service.guard.check(request.identity, "jobs.arguments", ActTarget(row.task, row.queue))
    return row


def _enqueue(request: PageRequest, row: JobRow, args: str, options: dict[str, Any]) -> JobRow | NewJob:
    declared = request.app.registry.get(row.task)
    given = {name: value for name, value in options.items() if value is not None}
    values = declared.arguments.load(args)
    _, (made,) = request.service.client.enqueuer.enqueue(declared, NO_OPTIONS.merged(given), [((), values)])
    return made


def _places(error: TidemillError) -> dict[str, str]:
    """Map an error to the form field it is about. Errors that the user cannot correct are raised again."""
    if isinstance(error, BadArguments | PayloadTooLarge):
        return {"args": error.message}
    if not isinstance(error, UsageError):
        raise error
    about = str(error.details.get("field") or error.details.get("option") or "")
    if about not in ("queue", "priority", "delay"):
        about = "queue" if "queue" in error.message else "all"
    return {about: error.message}


def _form(request: PageRequest, row: JobRow, typed: dict[str, str], wrong: dict[str, str]) -> Response:
    registry = request.app.registry
    declared = registry.get(row.task) if row.task in registry else None
    return request.render(
        "job_again.html",
        422 if wrong else 200,
        job=row,
        typed=typed,
        wrong=wrong,
        known=declared is not None,
        names=[] if declared is None else list(declared.arguments.names),
        queues=sorted({task.options.queue for task in registry}),
    )
