"""Form to create and change schedules, with a preview before saving."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from tidemill.client.schedules.schedule import Schedule
from tidemill.dashboard import schedule_form
from tidemill.dashboard.form_state import UNITS, FormState, complaints, refuse_to_look
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.schedules import found_at, preview
from tidemill.dashboard.zone_names import zone_names
from tidemill.domain.access import Role
from tidemill.domain.schedules import Source
from tidemill.errors import BadSchedule, TidemillError
from tidemill.rest.problems import Problem

pages = PageRoutes()

PREVIEWED = 5


@pages.get("/schedules/new", role=Role.ADMIN)
async def new(visit: PageRequest) -> Response:
    """Show an empty form, with the task in the query preselected."""
    refuse_to_look(visit)
    return await _form(visit, schedule_form.blank({"task": visit.asked.get("task")}), None)


@pages.post("/schedules/new", role=Role.ADMIN)
async def add(visit: PageRequest) -> Response:
    """Save the schedule, or show a preview."""
    rules, errors = schedule_form.read_rules(visit.form)
    key, task = visit.form.get("key"), visit.form.get("task")
    definition = visit.form.get("definition")
    if key is None:
        errors["key"] = "give it a name"
    if (task is None) == (definition is None):
        errors["task"] = "choose a task, or give the key of a definition under More; one of them"
    if errors or key is None:
        return await _form(visit, FormState(visit.form, errors), None)
    rules = schedule_form.without_empty(rules, None)
    said = {**rules, "scope": visit.form.get("scope"), "tenant": visit.home}
    trigger = said.pop("trigger")
    try:
        target: Any = task
        if definition is not None:
            target = await visit.read(visit.app.definitions.get, definition, tenant=visit.home)
        if visit.form.get("do") == "preview":
            facts = await visit.read(visit.app.schedules.value, target, trigger, key, **said)
            return await _form(visit, FormState(visit.form), None, Schedule(facts))
        enabled = visit.form.get("enabled") is not None
        made = await visit.act(visit.app.schedules.add, target, trigger, key, enabled=enabled, **said)
    except TidemillError as error:
        return await _again(visit, error, None)
    return visit.back(f"/schedules/{made.id}", f"Schedule {made.key} is saved.")


@pages.get("/schedules/{id}/edit", role=Role.ADMIN)
async def edit(visit: PageRequest) -> Response:
    """Show the form of an existing schedule."""
    refuse_to_look(visit)
    found = await _changeable(visit)
    return await _form(visit, FormState(schedule_form.shown(found)), found)


@pages.post("/schedules/{id}/edit", role=Role.ADMIN)
async def change(visit: PageRequest) -> Response:
    """Change the schedule from now on, or show a preview."""
    found = await _changeable(visit)
    rules, errors = schedule_form.read_rules(visit.form)
    if errors:
        return await _form(visit, FormState(visit.form, errors), found)
    try:
        options = visit.app.registry.get(found.task).options
        defaults = schedule_form.resets(found, options.queue, options.priority)
        said = schedule_form.without_empty(rules, defaults)
        if scope := visit.form.get("scope"):
            said["scope"] = scope
        if visit.form.get("do") == "preview":
            facts = await visit.read(_as_changed, visit, found, said)
            return await _form(visit, FormState(visit.form), found, facts)
        await visit.act(visit.app.schedules.update, found.id, tenant=found.tenant, **said)
    except TidemillError as error:
        return await _again(visit, error, found)
    return visit.back(f"/schedules/{found.id}", f"Schedule {found.key} is saved and effective immediately.")


def _as_changed(visit: PageRequest, found: Schedule, said: Mapping[str, Any]) -> Schedule:
    """Return the schedule as the change would make it, without saving."""
    more = dict(said)
    return Schedule(
        visit.app.schedules.value(found.task, more.pop("trigger"), found.key, tenant=found.tenant, **more)
    )


async def _changeable(visit: PageRequest) -> Schedule:
    found = await found_at(visit)
    if found.source is Source.CODE:
        raise Problem(
            409,
            None,
            f"Schedule {found.key} is declared in the code of {found.app or 'an app'}; change it there.",
        )
    return found


async def _again(visit: PageRequest, error: TidemillError, found: Schedule | None) -> Response:
    fields = {**schedule_form.fields_of(visit.form.get("kind")), "name": "task"}
    wrong = complaints(error, fields)
    if "" in wrong and not isinstance(error, BadSchedule):
        kind = type(error).__name__
        field = {"TaskNotFound": "task", "DefinitionNotFound": "definition", "ScheduleExists": "key"}.get(
            kind, ""
        )
        wrong = {field: wrong[""]}
    return await _form(visit, FormState(visit.form, wrong), found)


async def _form(
    visit: PageRequest, form: FormState, found: Schedule | None, previewed: Schedule | None = None
) -> Response:
    coming, changes = ([], []) if previewed is None else preview(previewed, PREVIEWED, visit.now())
    return visit.render(
        "schedule_edit.html",
        422 if form.is_wrong else 200,
        form=form,
        schedule=found,
        previewed=previewed,
        coming=coming,
        changes=changes,
        kinds=schedule_form.KINDS,
        week=schedule_form.WEEK,
        units=list(UNITS),
        zones=zone_names(),
        tasks=visit.app.registry.names(),
    )
