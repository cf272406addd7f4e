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
)
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.limits import Rule
from tidemill.domain.records import PauseKind
from tidemill.domain.states import HELD, JobState
from tidemill.errors import TidemillError
from tidemill.tasks.limit_rules import EACH
from tidemill.tasks.options import check_queue

pages = PageRoutes()


@pages.post("/queues/-/pause", role=Role.OPERATOR, everywhere=True)
async def pause(visit: PageRequest) -> Response:
    """Pause a queue."""
    name = visit.form.get("name") or ""
    check_queue(name)
    await visit.act(visit.app.control.pause, PauseKind.QUEUE, name, reason=read_reason(visit.form))
    return visit.back_to(
        visit.form.get("next"), f"Queue {name} is paused; running jobs continue.", otherwise="/queues"
    )


@pages.post("/queues/-/resume", role=Role.OPERATOR, everywhere=True)
async def resume(visit: PageRequest) -> Response:
    """Resume a queue."""
    name = visit.form.get("name") or ""
    await visit.act(visit.app.control.resume, PauseKind.QUEUE, name)
    return visit.back_to(visit.form.get("next"), f"Jobs of queue {name} start again.", otherwise="/queues")


# All queues --------------------------------------------------------------------------------------------------------------


@pages.get("/queues/-/pause-all", role=Role.ADMIN, everywhere=True)
async def ask_to_pause_all(visit: PageRequest) -> Response:
    """Ask for confirmation before everything is paused."""
    refuse_to_look(visit)
    impact = await visit.read(_impact, visit)
    return visit.render("pause_all.html", **impact)


def _impact(visit: PageRequest) -> dict[str, Any]:
    crowd = visit.inspection.unfinished(tenant="*")
    states = list(crowd.counts.values())
    return {
        "waiting": sum(counts.get(JobState.PENDING, 0) for counts in states),
        "held": sum(counts.get(state, 0) for counts in states for state in HELD),
        "sampled": crowd.sampled,
    }


@pages.post("/queues/-/pause-all", role=Role.ADMIN, everywhere=True)
async def pause_all(visit: PageRequest) -> Response:
    """Pause everything."""
    await visit.act(visit.app.control.pause, PauseKind.ALL, reason=read_reason(visit.form))
    return visit.back("/queues", "Everything is paused: no job starts until it is resumed.")


@pages.post("/queues/-/resume-all", role=Role.ADMIN, everywhere=True)
async def resume_all(visit: PageRequest) -> Response:
    """Resume everything."""
    await visit.act(visit.app.control.resume, PauseKind.ALL)
    return visit.back("/queues", "Jobs start again.")


@pages.post("/queues/-/enable-workers", role=Role.SUPER_ADMIN, everywhere=True)
async def enable_workers(visit: PageRequest) -> Response:
    """Let workers claim again after the setting ``worker_enabled`` stopped them."""
    await visit.act(visit.app.control.set, "worker_enabled", True)
    return visit.back("/queues", "Workers claim again.")


# Limits ------------------------------------------------------------------------------------------------------------------


@pages.get("/queues/-/limit", role=Role.ADMIN, everywhere=True)
async def new_limit(visit: PageRequest) -> Response:
    """Show an empty form."""
    refuse_to_look(visit)
    return await _form(visit, FormState({"per_unit": "minutes"}), None)


@pages.get("/queues/-/limit/{name:path}", role=Role.ADMIN, everywhere=True)
async def limit(visit: PageRequest) -> Response:
    """Show the form of one limit."""
    refuse_to_look(visit)
    name = visit.path["name"]
    rule = await visit.read(_rule, visit, name)
    values: dict[str, Any] = {"per_unit": "minutes"}
    if rule is not None:
        values |= {"max": rule.max, "burst": rule.burst}
        if rule.per is not None:
            values |= shown_span(rule.per.total_seconds(), "per")
    return await _form(visit, FormState(values), name)


@pages.post("/queues/-/limit", role=Role.ADMIN, everywhere=True)
async def set_new_limit(visit: PageRequest) -> Response:
    """Set the limit that the form names."""
    return await _set(visit, visit.form.get("name"), None)


@pages.post("/queues/-/limit/{name:path}", role=Role.ADMIN, everywhere=True)
async def set_limit(visit: PageRequest) -> Response:
    """Set a limit, overriding the code."""
    return await _set(visit, visit.path["name"], visit.path["name"])


async def _set(visit: PageRequest, name: str | None, fixed: str | None) -> Response:
    form = visit.form
    try:
        if name is None:
            raise FormError("name", "enter a limit name, for example queue/mail")
        most = read_whole(form, "max", least=0, most=2**31 - 1)
        if most is None:
            raise FormError("max", "give a whole number; 0 is no limit")
        per, burst = read_span(form, "per"), read_whole(form, "burst", least=1, most=2**31 - 1)
        await visit.act(visit.app.limits.set, name, most, per=per, burst=burst)
    except FormError as wrong:
        return await _form(visit, FormState(form, {wrong.field: wrong.words}), fixed)
    except TidemillError as error:
        fields = {"max": "max", "per": "per", "burst": "burst"}
        wrongs = complaints(error, fields)
        if "" in wrongs:
            wrongs = {"name": wrongs[""]}
        return await _form(visit, FormState(form, wrongs), fixed)
    return visit.back("/queues", f"Limit {name} is set; workers apply it within five seconds.")


@pages.post("/queues/-/unset-limit", role=Role.ADMIN, everywhere=True)
async def unset_limit(visit: PageRequest) -> Response:
    """Return to the limit in code."""
    name = visit.form.get("name") or ""
    was = await visit.act(visit.app.limits.unset, name)
    message = f"Limit {name} is reset to its value in code." if was else f"Limit {name} was not set."
    return visit.back("/queues", message, good=was)


@pages.post("/queues/-/reset-breaker", role=Role.OPERATOR, everywhere=True)
async def reset_breaker(visit: PageRequest) -> Response:
    """Close a breaker, so that the jobs waiting for it can run."""
    name = visit.form.get("name") or ""
    breaker = await visit.act(visit.app.limits.reset_breaker, name)
    return visit.back("/queues", f"{breaker.name} is closed; jobs waiting for it continue.")


def _rule(visit: PageRequest, name: str) -> Rule | None:
    rules = {rule.name: rule for rule in visit.inspection.limit_rules()}
    return rules.get(name) or visit.app.limits.declared().get(name)


async def _form(visit: PageRequest, form: FormState, fixed: str | None) -> Response:
    declared = await visit.read(visit.app.limits.declared)
    names = {*declared, *EACH, *(f"queue/{task.options.queue}" for task in visit.app.registry)}
    names |= {f"task/{name}" for name in visit.app.registry.names()}
    return visit.render(
        "limit.html",
        422 if form.is_wrong else 200,
        form=form,
        fixed=fixed,
        names=sorted(names),
        units=list(UNITS),
    )
