"""Actions on queues and limits.

The paths contain no queue name, because a name may contain any character, including slashes.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tidemill.dashboard.form_state import (
    UNITS,
    FormError,
    FormState,
    complaints,
    read_reason,
    read_span,
    read_whole,
    refuse_to_look,
    shown_span,
    undo_resume,
)
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.bounds import check_queue
from tidemill.domain.limits import Rule
from tidemill.domain.records import PauseKind
from tidemill.domain.states import HELD, JobState
from tidemill.errors import TidemillError
from tidemill.tasks.limit_rules import PER_NAME
from tidemill.web.sessions import UndoForm

pages = PageRoutes()


@pages.post("/queues/-/pause", role=Role.OPERATOR, everywhere=True)
async def pause(request: PageRequest) -> Response:
    """Pause a queue."""
    name = request.form.get("name") or ""
    check_queue(name)
    await request.act(request.app.control.pause, PauseKind.QUEUE, name, reason=read_reason(request.form))
    return request.back_to(
        request.form.get("next"),
        f"Queue {name} is paused; running jobs continue.",
        otherwise="/queues",
        undo=UndoForm("/queues/-/resume", {"name": name}),
    )


@pages.post("/queues/-/resume", role=Role.OPERATOR, everywhere=True)
async def resume(request: PageRequest) -> Response:
    """Resume a queue."""
    name = request.form.get("name") or ""
    ended = await request.act(request.app.control.resume, PauseKind.QUEUE, name)
    return request.back_to(
        request.form.get("next"),
        f"Jobs of queue {name} start again.",
        otherwise="/queues",
        undo=undo_resume("/queues/-/pause", ended),
    )


# All queues --------------------------------------------------------------------------------------------------------------


@pages.get("/queues/-/pause-all", role=Role.ADMIN, everywhere=True)
async def ask_to_pause_all(request: PageRequest) -> Response:
    """Ask for confirmation before everything is paused."""
    refuse_to_look(request)
    impact = await request.cached(("unfinished",), _impact, request)
    return request.render("pause_all.html", **impact)


def _impact(request: PageRequest) -> dict[str, Any]:
    crowd = request.inspection.unfinished(tenant="*")
    states = list(crowd.counts.values())
    return {
        "waiting": sum(counts.get(JobState.PENDING, 0) for counts in states),
        "held": sum(counts.get(state, 0) for counts in states for state in HELD),
        "sampled": crowd.sampled,
    }


@pages.post("/queues/-/pause-all", role=Role.ADMIN, everywhere=True)
async def pause_all(request: PageRequest) -> Response:
    """Pause everything."""
    await request.act(request.app.control.pause, PauseKind.ALL, reason=read_reason(request.form))
    return request.back("/queues", "Everything is paused: no job starts until it is resumed.")


@pages.post("/queues/-/resume-all", role=Role.ADMIN, everywhere=True)
async def resume_all(request: PageRequest) -> Response:
    """Resume everything."""
    await request.act(request.app.control.resume, PauseKind.ALL)
    return request.back("/queues", "Jobs start again.")


@pages.post("/queues/-/enable-workers", role=Role.SUPER_ADMIN, everywhere=True)
async def enable_workers(request: PageRequest) -> Response:
    """Let workers claim again after the setting ``worker_enabled`` stopped them."""
    await request.act(request.app.control.set, "worker_enabled", True)
    return request.back("/queues", "Workers claim again.")


# Limits ------------------------------------------------------------------------------------------------------------------


@pages.get("/queues/-/limit", role=Role.ADMIN, everywhere=True)
async def new_limit(request: PageRequest) -> Response:
    """Show an empty form."""
    refuse_to_look(request)
    return await _form(request, FormState({"per_unit": "minutes"}), None)


@pages.get("/queues/-/limit/{name:path}", role=Role.ADMIN, everywhere=True)
async def limit(request: PageRequest) -> Response:
    """Show the form of one limit."""
    refuse_to_look(request)
    name = request.path["name"]
    rule = await request.read(_rule, request, name)
    values: dict[str, Any] = {"per_unit": "minutes"}
    if rule is not None:
        values |= {"max": rule.max, "burst": rule.burst}
        if rule.per is not None:
            values |= shown_span(rule.per.total_seconds(), "per")
    return await _form(request, FormState(values), name)


@pages.post("/queues/-/limit", role=Role.ADMIN, everywhere=True)
async def set_new_limit(request: PageRequest) -> Response:
    """Set the limit that the form names."""
    return await _set(request, request.form.get("name"), None)


@pages.post("/queues/-/limit/{name:path}", role=Role.ADMIN, everywhere=True)
async def set_limit(request: PageRequest) -> Response:
    """Set a limit, overriding the code."""
    return await _set(request, request.path["name"], request.path["name"])


async def _set(request: PageRequest, name: str | None, fixed: str | None) -> Response:
    form = request.form
    try:
        if name is None:
            raise FormError("name", "enter a limit name, for example queue/mail")
        most = read_whole(form, "max", least=0, most=2**31 - 1)
        if most is None:
            raise FormError("max", "give a whole number; 0 is no limit")
        per, burst = read_span(form, "per"), read_whole(form, "burst", least=1, most=2**31 - 1)
        await request.act(request.app.limits.set, name, most, per=per, burst=burst)
    except FormError as wrong:
        return await _form(request, FormState(form, {wrong.field: wrong.words}), fixed)
    except TidemillError as error:
        fields = {"max": "max", "per": "per", "burst": "burst"}
        wrongs = complaints(error, fields)
        if "" in wrongs:
            wrongs = {"name": wrongs[""]}
        return await _form(request, FormState(form, wrongs), fixed)
    return request.back("/queues", f"Limit {name} is set; workers apply it within five seconds.")


@pages.post("/queues/-/unset-limit", role=Role.ADMIN, everywhere=True)
async def unset_limit(request: PageRequest) -> Response:
    """Return to the limit in code."""
    name = request.form.get("name") or ""
    was = await request.act(request.app.limits.unset, name)
    message = f"Limit {name} is reset to its value in code." if was else f"Limit {name} was not set."
    return request.back("/queues", message, good=was)


@pages.post("/queues/-/reset-breaker", role=Role.OPERATOR, everywhere=True)
async def reset_breaker(request: PageRequest) -> Response:
    """Close a breaker, so that the jobs waiting for it can run."""
    name = request.form.get("name") or ""
    breaker = await request.act(request.app.limits.reset_breaker, name)
    return request.back("/queues", f"{breaker.name} is closed; jobs waiting for it continue.")


def _rule(request: PageRequest, name: str) -> Rule | None:
    rules = {rule.name: rule for rule in request.inspection.limit_rules()}
    return rules.get(name) or request.app.limits.declared().get(name)


async def _form(request: PageRequest, form: FormState, fixed: str | None) -> Response:
    declared = await request.read(request.app.limits.declared)
    names = {*declared, *PER_NAME, *(f"queue/{task.options.queue}" for task in request.app.registry)}
    names |= {f"task/{name}" for name in request.app.registry.names()}
    return request.render(
        "limit.html",
        422 if form.is_wrong else 200,
        form=form,
        fixed=fixed,
        names=sorted(names),
        units=list(UNITS),
    )
