"""``/jobs/{id}``: details of one live or archived job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from tidemill.client.documents import plain
from tidemill.client.jobs.api import origin
from tidemill.client.jobs.handle import Job as Handle
from tidemill.client.jobs.why import explain
from tidemill.dashboard import snippets, timelines, tracebacks
from tidemill.dashboard.jobs import took
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.decide import Action, expected
from tidemill.domain.estimate import eta_of, fraction_done
from tidemill.domain.job import CHANGEABLE, JobRow, LogEntry
from tidemill.domain.stages import stages
from tidemill.domain.states import ENDED, HELD
from tidemill.domain.trace_context import trace_id
from tidemill.errors import JobNotFound

pages = PageRoutes()

LINES = 200
KIN = 20
EXECUTIONS = 50
_END = 2**62
"""A log position after every line."""


@pages.get("/jobs/{id}", role=Role.VIEWER)
async def job(visit: PageRequest) -> Response:
    """Show one live or archived job."""
    try:
        job = await visit.job()
    except JobNotFound:
        return visit.render("job_gone.html", 404, id=visit.id())
    before = visit.asked.whole("before", _END, most=_END)
    found = await visit.read(_look, visit, job, before)
    return visit.render("job.html", **shown(visit, job.facts), **found)


def _look(visit: PageRequest, job: Handle[Any], before: int) -> dict[str, Any]:
    """Run all queries of the page in sequence on one thread. Each one returns a bounded number of rows."""
    store, app, now, facts = visit.app.store, visit.app, visit.now(), job.facts
    executions = job.executions()
    lines = _lines(visit, job, before)
    details = facts.details
    children = app.jobs.list(parent_id=facts.id, tenant=visit.tenant, sort="oldest", limit=KIN)
    parent = store.get([details.parent_id], tenant=visit.tenant) if details.parent_id is not None else []
    related = None
    if details.correlation_id is not None:
        related = app.jobs.list(correlation_id=details.correlation_id, tenant=facts.tenant, limit=KIN)
    names = {worker.id: worker.name for worker in store.workers()}
    return {
        "made_by": origin(store, facts),
        "why": explain(store, facts, now),
        "executions": sorted(executions, key=lambda each: each.number, reverse=True)[:EXECUTIONS],
        "executions_left_out": max(len(executions) - EXECUTIONS, 0),
        "picture": timelines.picture(facts, executions, now),
        "lines": [(position, entry, visit.masked(entry.details)) for position, entry in lines],
        "older": lines[0][0] if len(lines) == LINES else None,
        "from_the_end": before == _END,
        "stages": stages([entry for _, entry in lines], executions, _declared(visit, facts)),
        "kin_children": children.items,
        "children_more": children.next is not None,
        "parent": parent[0] if parent else None,
        "related": None if related is None else [each for each in related.items if each.id != facts.id],
        "related_more": related is not None and related.next is not None,
        "workers": names,
    }


def _lines(visit: PageRequest, job: Handle[Any], before: int) -> Sequence[tuple[int, LogEntry]]:
    """Return the last log lines before a position. For an archived job, the position is the line number."""
    if job.archived_at is not None:
        return [line for line in enumerate(job.logs(), 1) if line[0] < before][-LINES:]
    return visit.app.store.logs(job.id, tenant=job.tenant, before=before, limit=LINES)


def shown(visit: PageRequest, facts: JobRow) -> dict[str, Any]:
    """Return the template values from the job itself, with secrets masked for this user."""
    now, said = visit.now(), facts.progress
    args = visit.masked(plain(facts.args))
    options = _options(visit, facts)
    named = args if isinstance(args, dict) else {}
    address = f"{visit.request.url.scheme}://{visit.request.url.netloc}{visit.where('/api/jobs')}"
    error = facts.error
    trace = error.traceback if error is not None else None
    return {
        "job": facts,
        "args": args,
        "result": visit.masked(plain(facts.result)),
        "metadata": visit.masked(dict(facts.details.metadata)),
        "trace_id": trace_id(facts.details.headers),
        "took": took(facts, now),
        "progress": said,
        "fraction": fraction_done(facts) if said is not None and said.fraction is not None else None,
        "eta": eta_of(facts, now),
        "trace": tracebacks.parts(trace) if trace else [],
        "place": tracebacks.users_place(trace) if trace else None,
        "can": possible(facts),
        "as_python": snippets.as_python(facts.task, named, options),
        "as_curl": snippets.as_curl(address, facts.task, named, options),
    }


def possible(facts: JobRow) -> frozenset[str]:
    """Return the actions that this job's state allows; none for an archived job."""
    if facts.archived_at is not None:
        return frozenset()
    found = {
        name
        for name, action in (
            ("retry", Action.RETRY),
            ("run_now", Action.RUN_NOW),
            ("reschedule", Action.RESCHEDULE),
            ("rerun", Action.RERUN),
            ("approve", Action.APPROVE),
            ("reject", Action.REJECT),
        )
        if facts.state in expected(action)
    }
    if facts.state in expected(Action.CANCEL) | HELD:
        found.add("cancel")
    if facts.state in CHANGEABLE:
        found.add("change")
    if facts.state in ENDED:
        found.add("delete")
    return frozenset(found)


def _options(visit: PageRequest, facts: JobRow) -> dict[str, Any]:
    """Return the options, besides the arguments, that enqueue the same job again."""
    registry = visit.app.registry
    usual = registry.get(facts.task).options if facts.task in registry else None
    found: dict[str, Any] = {}
    if usual is None or usual.queue != facts.queue:
        found["queue"] = facts.queue
    if facts.priority != (0 if usual is None else usual.priority):
        found["priority"] = facts.priority
    if facts.details.tags:
        found["tags"] = list(facts.details.tags)
    return found


def _declared(visit: PageRequest, facts: JobRow) -> Sequence[str]:
    """Return the stages that the job's task declares, if this server has the task's code."""
    registry = visit.app.registry
    return registry.get(facts.task).options.stages if facts.task in registry else ()
