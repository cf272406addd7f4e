"""Task pages: list, and details with arguments and latest jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from starlette.responses import Response

from tidemill.client import control
from tidemill.client.limits import LimitState
from tidemill.client.stats.loads import TaskEnds, task_load
from tidemill.dashboard import charts
from tidemill.dashboard.argument_form import arguments_of, takes_more
from tidemill.dashboard.ended_charts import ended_charts, sparks, window_of
from tidemill.dashboard.form_state import UNITS, FormState
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.records import PauseKind
from tidemill.domain.states import HELD
from tidemill.domain.stats import EndedTiming, UnfinishedCounts
from tidemill.errors import TaskNotFound
from tidemill.tasks.task import Declared

pages = PageRoutes()

PAGE = 100
"""Tasks per page."""

LATEST = 100
"""Number of ended jobs that a task's page reads."""

SHOWN = 10
"""Number of those jobs that the page lists."""

ERRORS, SLOWEST = 5, 5
NO_TIME = timedelta(0)


@pages.get("/tasks", role=Role.VIEWER)
async def tasks(request: PageRequest) -> Response:
    """List the matching tasks of one page."""
    words = request.query.get("q")
    page = request.query.whole_number("page", 1, least=1, most=100_000)
    values = await request.read(_list, request, *await _counts(request), words, page)
    paths = await request.cached(("task sparks", request.tenant), sparks, request, "task")
    return request.render("tasks.html", words=words, page=page, paths=paths, **values)


async def _counts(request: PageRequest) -> tuple[UnfinishedCounts, TaskEnds]:
    """Return the cached counts of unfinished jobs, and of jobs that ended in the last 24 hours, by task."""
    return await request.cached(("tasks", request.tenant), _count, request)


def _count(request: PageRequest) -> tuple[UnfinishedCounts, TaskEnds]:
    inspection, tenant = request.inspection, request.tenant
    return inspection.unfinished(tenant=tenant), inspection.task_ends(request.now(), tenant=tenant)


def _list(
    request: PageRequest, crowd: UnfinishedCounts, ends: TaskEnds, words: str | None, page: int
) -> dict[str, Any]:
    inspection, registry = request.inspection, request.app.registry
    stored = inspection.task_names(request.now(), tenant=request.tenant, crowd=crowd)
    names = sorted({*registry.names(), *stored})
    matching = [name for name in names if words is None or words.lower() in name.lower()]
    shown = matching[(page - 1) * PAGE : page * PAGE]
    loads = inspection.task_loads(request.now(), shown, crowd, ends, tenant=request.tenant)
    return {
        "total": len(names),
        "matching": len(matching),
        "rows": [(load, registry.get(load.name) if load.name in registry else None) for load in loads.rows],
        "sampled": loads.sampled,
        "more": len(matching) > page * PAGE,
    }


@pages.get("/tasks/{name:path}", role=Role.VIEWER)
async def task(request: PageRequest) -> Response:
    """Show one task, with a form to enqueue a job."""
    return await show(request, request.path["name"], FormState({}))


async def show(request: PageRequest, name: str, form: FormState) -> Response:
    """Render the page of a task with the values of its form."""
    values = await request.read(_look, request, *await _counts(request), name)
    window = window_of(request)
    shown = await request.cached(("task", name, window, request.tenant), _ended, request, name, window)
    status = 422 if form.is_wrong else 200
    return request.render("task.html", status, form=form, units=list(UNITS), **values, **shown)


def _ended(request: PageRequest, name: str, window: str) -> dict[str, Any]:
    """Return the charts of a task, its errors, and its slowest latest jobs."""
    errors = request.app.errors.list(window, task=name, limit=ERRORS, tenant=request.tenant)
    if request.hides_arguments:
        errors = [replace(error, message="") for error in errors]
    latest = request.inspection.latest_ends(name, tenant=request.tenant, limit=LATEST)
    timed = [job for job in latest if job.run_time is not None]
    timed.sort(key=lambda job: job.run_time or NO_TIME, reverse=True)
    return {
        **ended_charts(request, window, task=name),
        "errors": [(error, charts.spark(error.trend)) for error in errors],
        "slowest": timed[:SLOWEST],
    }


def _look(request: PageRequest, crowd: UnfinishedCounts, ends: TaskEnds, name: str) -> dict[str, Any]:
    inspection, registry = request.inspection, request.app.registry
    declared = registry.get(name) if name in registry else None
    latest = inspection.latest_ends(name, tenant=request.tenant, limit=LATEST)
    lately = sorted(latest, key=lambda job: job.finished_at, reverse=True)
    counts = crowd.counts.get(name, {})
    pause = {(pause.kind, pause.name): pause for pause in request.app.control.pauses()}.get(
        (PauseKind.TASK, name)
    )
    everywhere = request.identity.tenant == ALL_TENANTS
    exists = declared is not None or counts or lately or (pause is not None and everywhere)
    if not exists and name not in inspection.task_names(request.now(), tenant=request.tenant):
        raise TaskNotFound(
            f"unknown task {name[:200]!r}: no job, worker or code on this server refers to it", name=name
        )
    return {
        "name": name,
        **_declaration(declared),
        "load": task_load(name, counts, ends, pause),
        "sampled": crowd.sampled,
        "held": inspection.newest_jobs(tenant=request.tenant, states=HELD, task=name, limit=SHOWN),
        "latest": lately[:SHOWN],
        "bars": bars(lately),
        "setting": setting_of(request, name) if everywhere else {},
        "limits": _limits(request, name, declared) if everywhere else [],
    }


def _declaration(declared: Declared | None) -> dict[str, Any]:
    """Return the template values from the task's code, if this server has it."""
    if declared is None:
        return dict.fromkeys(("task", "description", "retry", "schema"), None) | {
            "arguments": [],
            "takes_more": False,
        }
    schema = declared.arguments.schema()
    return {
        "task": declared,
        "description": declared.description,
        "retry": type(declared.options.retry).__name__,
        "schema": schema,
        "arguments": arguments_of(schema),
        "takes_more": takes_more(schema),
    }


def _limits(request: PageRequest, name: str, declared: Declared | None) -> list[LimitState]:
    return [limit for limit in request.app.limits.list() if concerns(limit.name, name, declared)]


def concerns(limit: str, task: str, declared: Declared | None) -> bool:
    """Whether jobs of a task count against a limit."""
    if limit == f"task/{task}" or limit.startswith(f"{task}."):
        return True
    if declared is None:
        return False
    queue, breaker = declared.options.queue, declared.options.breaker
    named = {rule.name for rule in declared.options.limits if rule.name}
    return limit in {f"queue/{queue}", f"depth/queue/{queue}", "queue", *named} or (
        breaker is not None and limit == f"breaker/{breaker.name}"
    )


def bars(lately: list[EndedTiming]) -> list[dict[str, Any]]:
    """Return the latest jobs as bars, oldest first. The height is the run time."""
    times = [job.run_time.total_seconds() if job.run_time is not None else 0.0 for job in lately]
    top = charts.nice(max(times, default=0.0))
    step = 720 / max(len(lately), 30)
    return [
        {
            "job": job,
            "x": round(at * step, 2),
            "width": round(step * 0.8, 2),
            "height": round(max(100 * seconds / top, 2.0), 2),
        }
        for at, (job, seconds) in enumerate(reversed(list(zip(lately, times, strict=True))))
    ]


def setting_of(request: PageRequest, name: str) -> Mapping[str, Any]:
    """Return the runtime settings of a task, without its limit."""
    return control.setting_of(name, request.app.control.settings())
