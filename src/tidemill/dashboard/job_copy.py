"""``/jobs/{id}/again``: enqueue a copy of a job.

The user may change the arguments and the time. The original job is not changed.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tidemill.client.core import client_of
from tidemill.client.documents import plain
from tidemill.client.enqueue.options import NO_OPTIONS
from tidemill.dashboard.form_state import refuse_to_look
from tidemill.dashboard.formats import as_json
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.parsers import read_number, read_object, read_span
from tidemill.domain.access import Role
from tidemill.domain.job import HIGHEST_PRIORITY, LOWEST_PRIORITY, JobRow, NewJob
from tidemill.errors import BadArguments, PayloadTooLarge, TidemillError, UsageError

pages = PageRoutes()


@pages.get("/jobs/{id}/again", role=Role.OPERATOR)
async def edit(visit: PageRequest) -> Response:
    """Show the form with the values of the original job."""
    refuse_to_look(visit)
    facts = await visit.facts()
    typed = {
        "args": as_json(plain(facts.args)),
        "queue": facts.queue,
        "priority": str(facts.priority),
        "delay": "",
    }
    return _form(visit, facts, typed, {})


@pages.post("/jobs/{id}/again", role=Role.OPERATOR)
async def enqueue_again(visit: PageRequest) -> Response:
    """Enqueue the copy, or show the form again with errors next to the fields."""
    facts = await visit.facts()
    typed = {name: visit.form.get(name) or "" for name in ("args", "queue", "priority", "delay")}
    options: dict[str, Any] = {"tenant": facts.tenant, "queue": typed["queue"] or facts.queue}
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
        details = facts.details
        options |= {"tags": details.tags, "metadata": details.metadata, "reference": details.reference}
        options["correlation_id"] = details.correlation_id
        try:
            made = await visit.act(_enqueue, visit, facts, typed["args"] or "{}", options)
        except TidemillError as error:
            wrong = _places(error)
        else:
            words = (
                "Enqueued as a new job."
                if isinstance(made, NewJob)
                else f"Job {made.id} holds its unique key."
            )
            return visit.back(f"/jobs/{made.id}", words, good=isinstance(made, NewJob))
    return _form(visit, facts, typed, wrong)


def _enqueue(visit: PageRequest, facts: JobRow, args: str, options: dict[str, Any]) -> JobRow | NewJob:
    declared = visit.app.registry.get(facts.task)
    said = {name: value for name, value in options.items() if value is not None}
    values = declared.arguments.load(args)
    (made,) = client_of(visit.app).enqueuer.enqueue(declared, NO_OPTIONS.merged(said), [((), values)])
    return made


def _places(error: TidemillError) -> dict[str, str]:
    """Map an error to the form field it is about. Errors that the user cannot correct are raised again."""
    if isinstance(error, BadArguments | PayloadTooLarge):
        return {"args": error.message}
    if not isinstance(error, UsageError):
        raise error
    about = str(error.facts.get("field") or error.facts.get("option") or "")
    if about not in ("queue", "priority", "delay"):
        about = "queue" if "queue" in error.message else "all"
    return {about: error.message}


def _form(visit: PageRequest, facts: JobRow, typed: dict[str, str], wrong: dict[str, str]) -> Response:
    registry = visit.app.registry
    known = registry.get(facts.task) if facts.task in registry else None
    return visit.render(
        "job_again.html",
        422 if wrong else 200,
        job=facts,
        typed=typed,
        wrong=wrong,
        known=known is not None,
        names=[] if known is None else list(known.arguments.names),
        queues=sorted({task.options.queue for task in registry}),
    )
