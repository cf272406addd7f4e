"""``/jobs/{id}``: all that is known of one job, and what became of those that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from starlette.responses import Response

from tidemill.client.documents import plain
from tidemill.client.why import explain
from tidemill.dashboard import snippets, timelines, tracebacks
from tidemill.dashboard.jobs import took
from tidemill.dashboard.pages import Pages
from tidemill.dashboard.visit import Visit
from tidemill.domain.access import Role
from tidemill.domain.decide import Action, expected
from tidemill.domain.estimate import eta_of, fraction_done
from tidemill.domain.job import Execution, Job, LogEntry
from tidemill.domain.states import ENDED, HELD
from tidemill.errors import JobNotFound

pages = Pages()

LINES = 200
KIN = 20
EXECUTIONS = 50
_END = 2**62
"""A position that is after every line."""


class Stage(NamedTuple):
    """A named part of the work, as its log tells of it."""

    name: str
    number: int  #: of the execution
    took: timedelta | None  #: None while it goes on
    words: str


@pages.get("/jobs/{id}", role=Role.VIEWER)
async def job(visit: Visit) -> Response:
    """One job."""
    try:
        facts = await visit.facts()
    except JobNotFound:
        return await gone(visit, visit.id())
    before = visit.asked.whole("before", _END, most=_END)
    found = await visit.read(_look, visit, facts, before)
    return visit.render("job.html", **shown(visit, facts), **found)


async def gone(visit: Visit, id: UUID) -> Response:
    """A job that is not there: archived, or deleted, or never was."""
    try:
        archived = await visit.read(visit.app.archive.get, id, tenant=visit.tenant)
    except JobNotFound:
        archived = None
    return visit.render("job_gone.html", 404, id=id, archived=archived)


def _look(visit: Visit, facts: Job, before: int) -> dict[str, Any]:
    """What is asked of the store, on one thread one after the other; every question is bounded."""
    store, app, now = visit.app.store, visit.app, visit.now()
    executions = store.executions([facts.id], tenant=facts.tenant)
    lines = store.logs(facts.id, tenant=facts.tenant, before=before, limit=LINES)
    details = facts.details
    children = app.jobs.list(parent_id=facts.id, tenant=visit.tenant, sort="oldest", limit=KIN)
    parent = store.get([details.parent_id], tenant=visit.tenant) if details.parent_id is not None else []
    related = None
    if details.correlation_id is not None:
        related = app.jobs.list(correlation_id=details.correlation_id, tenant=facts.tenant, limit=KIN)
    names = {worker.id: worker.name for worker in store.workers()}
    return {
        "why": explain(store, facts, now),
        "executions": sorted(executions, key=lambda each: each.number, reverse=True)[:EXECUTIONS],
        "executions_left_out": max(len(executions) - EXECUTIONS, 0),
        "picture": timelines.picture(facts, executions, now),
        "lines": [(position, entry, visit.masked(entry.details)) for position, entry in lines],
        "older": lines[0][0] if len(lines) == LINES else None,
        "from_the_end": before == _END,
        "stages": stages([entry for _, entry in lines], executions),
        "kin_children": children.items,
        "children_more": children.next is not None,
        "parent": parent[0] if parent else None,
        "related": None if related is None else [each for each in related.items if each.id != facts.id],
        "related_more": related is not None and related.next is not None,
        "workers": names,
    }


def shown(visit: Visit, facts: Job) -> dict[str, Any]:
    """What the job itself says, as this person may see it."""
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


def possible(facts: Job) -> frozenset[str]:
    """What could be done to a job in this state."""
    found = {
        name
        for name, action in (("retry", Action.RETRY), ("approve", Action.APPROVE), ("reject", Action.REJECT))
        if facts.state in expected(action)
    }
    if facts.state in expected(Action.CANCEL) | HELD:
        found.add("cancel")
    if facts.state in ENDED:
        found.add("delete")
    return frozenset(found)


def _options(visit: Visit, facts: Job) -> dict[str, Any]:
    """What must be said to get the same job again, beside its arguments."""
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


def stages(lines: Sequence[LogEntry], executions: Sequence[Execution]) -> list[Stage]:
    """The stages of the last execution that these lines tell of, in the order they began, with how long they took."""
    marks = [entry for entry in lines if entry.stage is not None]
    if not marks:
        return []
    number = max(entry.number for entry in marks)
    ended = {each.number for each in executions if each.finished_at is not None}
    found: dict[str, Stage] = {}
    for entry in (entry for entry in marks if entry.number == number):
        name = entry.stage or ""
        if entry.duration is not None and entry.message.startswith(f"stage {name} "):
            words = (
                "done" if entry.message.endswith(" ends") else entry.message.removeprefix(f"stage {name} ")
            )
            found[name] = Stage(name, number, entry.duration, words)
        elif name not in found:
            found[name] = Stage(name, number, None, "not finished" if number in ended else "going on")
    return list(found.values())
