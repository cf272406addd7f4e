"""Task pages: list, and details with arguments and latest jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from tidemill.client import control
from tidemill.client.stats.loads import task_ends, task_load, task_loads, task_names
from tidemill.dashboard import charts
from tidemill.dashboard.argument_form import Argument, arguments_of, takes_more
from tidemill.dashboard.form_state import UNITS, FormState
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.records import PauseKind
from tidemill.domain.states import HELD
from tidemill.domain.stats import EndedGroups, EndedTiming, UnfinishedCounts
from tidemill.errors import TaskNotFound
from tidemill.tasks.task import Declared

pages = PageRoutes()

PAGE = 100
"""Tasks per page."""

LATEST = 100
"""Number of ended jobs that a task's page reads."""

SHOWN = 10
"""Number of those jobs that the page lists."""


@pages.get("/tasks", role=Role.VIEWER)
async def tasks(visit: PageRequest) -> Response:
    """List the matching tasks of one page."""
    words = visit.asked.get("q")
    page = visit.asked.whole("page", 1, least=1, most=100_000)
    found = await visit.read(_list, visit, *await _counts(visit), words, page)
    return visit.render("tasks.html", words=words, page=page, **found)


async def _counts(visit: PageRequest) -> tuple[UnfinishedCounts, EndedGroups]:
    """Return the cached counts of unfinished jobs, and of jobs that ended in the last 24 hours, by task."""
    return await visit.figures(("tasks", visit.tenant), _count, visit)


def _count(visit: PageRequest) -> tuple[UnfinishedCounts, EndedGroups]:
    store, tenant = visit.app.store, visit.tenant
    return store.crowd(tenant=tenant), task_ends(store, visit.now(), tenant=tenant)


def _list(
    visit: PageRequest, crowd: UnfinishedCounts, ends: EndedGroups, words: str | None, page: int
) -> dict[str, Any]:
    store, registry = visit.app.store, visit.app.registry
    known = sorted(set(registry.names()) | task_names(store, visit.now(), tenant=visit.tenant, crowd=crowd))
    matching = [name for name in known if words is None or words.lower() in name.lower()]
    shown = matching[(page - 1) * PAGE : page * PAGE]
    loads = task_loads(store, visit.now(), shown, tenant=visit.tenant, crowd=crowd, ends=ends)
    return {
        "total": len(known),
        "matching": len(matching),
        "rows": [(load, registry.get(load.name) if load.name in registry else None) for load in loads.rows],
        "sampled": loads.sampled,
        "ended_since": loads.ended_since if loads.ended_sampled else None,
        "more": len(matching) > page * PAGE,
    }


@pages.get("/tasks/{name:path}", role=Role.VIEWER)
async def task(visit: PageRequest) -> Response:
    """Show one task, with a form to enqueue a job."""
    return await show(visit, visit.path["name"], FormState({}))


async def show(visit: PageRequest, name: str, form: FormState) -> Response:
    """Render the page of a task with the values of its form."""
    found = await visit.read(_look, visit, *await _counts(visit), name)
    return visit.render("task.html", 422 if form.is_wrong else 200, form=form, units=list(UNITS), **found)


def _look(visit: PageRequest, crowd: UnfinishedCounts, ends: EndedGroups, name: str) -> dict[str, Any]:
    store, registry = visit.app.store, visit.app.registry
    declared = registry.get(name) if name in registry else None
    lately = store.lately([name], tenant=visit.tenant, each=LATEST)
    counts = crowd.counts.get(name, {})
    ended = next((row for row in ends.rows if row.name == name), None)
    pause = next((each for each in store.pauses() if each.kind is PauseKind.TASK and each.name == name), None)
    everywhere = visit.identity.tenant == ALL_TENANTS
    known = declared is not None or counts or lately or (pause is not None and everywhere)
    if not known and name not in task_names(store, visit.now(), tenant=visit.tenant):
        raise TaskNotFound(
            f"unknown task {name[:200]!r}: no job, worker or code on this server refers to it", name=name
        )
    held = store.jobs(JobFilter(visit.tenant, states=HELD, tasks=frozenset({name})), limit=SHOWN).items
    schema = None if declared is None else declared.arguments.schema()
    return {
        "name": name,
        "task": declared,
        "description": None if declared is None else declared.description,
        "retry": None if declared is None else type(declared.options.retry).__name__,
        "load": task_load(name, counts, ended, lately, pause),
        "sampled": crowd.sampled,
        "ended_since": ends.since_at if ends.sampled else None,
        "held": held,
        "latest": lately[:SHOWN],
        "bars": bars(lately),
        "schema": schema,
        "arguments": _arguments(schema),
        "takes_more": schema is not None and takes_more(schema),
        "setting": setting_of(visit, name) if everywhere else {},
        "limits": [each for each in visit.app.limits.list() if concerns(each.name, name, declared)]
        if everywhere
        else [],
    }


def _arguments(schema: Mapping[str, Any] | None) -> list[Argument]:
    return [] if schema is None else arguments_of(schema)


def concerns(limit: str, task: str, declared: Declared | None) -> bool:
    """Whether jobs of a task count against a limit."""
    if limit == f"task/{task}" or limit.startswith(f"{task}."):
        return True
    if declared is None:
        return False
    queue, breaker = declared.options.queue, declared.options.breaker
    named = {each.name for each in declared.options.limits if each.name}
    return limit in {f"queue/{queue}", f"depth/queue/{queue}", "queue", *named} or (
        breaker is not None and limit == f"breaker/{breaker.name}"
    )


def bars(lately: list[EndedTiming]) -> list[dict[str, Any]]:
    """Return the latest jobs as bars, oldest first. The height is the run time."""
    times = [job.run_time.total_seconds() if job.run_time is not None else 0.0 for job in lately]
    top = charts.nice(max(times, default=0.0))
    each = 720 / max(len(lately), 30)
    return [
        {
            "job": job,
            "x": round(at * each, 2),
            "width": round(each * 0.8, 2),
            "height": round(max(100 * seconds / top, 2.0), 2),
        }
        for at, (job, seconds) in enumerate(reversed(list(zip(lately, times, strict=True))))
    ]


def setting_of(visit: PageRequest, name: str) -> Mapping[str, Any]:
    """Return the runtime settings of a task, without its limit."""
    return control.setting_of(name, visit.app.control.settings())
