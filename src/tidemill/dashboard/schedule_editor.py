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
from tidemill.dashboard.schedules import preview, schedule_at
from tidemill.dashboard.zone_names import zone_names
from tidemill.domain.access import Role
from tidemill.domain.schedules import Source
from tidemill.errors import BadSchedule, TidemillError
from tidemill.web.problems import Problem

pages = PageRoutes()

PREVIEWED = 5


@pages.get("/schedules/new", role=Role.ADMIN)
async def new(visit: PageRequest) -> Response:
    """Show an empty form, with the task in the query preselected."""
    refuse_to_look(visit)
    return await _form(visit, schedule_form.blank({"task": visit.query.get("task")}), None)


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
    options = {**rules, "scope": visit.form.get("scope"), "tenant": visit.home}
    trigger = options.pop("trigger")
    try:
        target: Any = task
        if definition is not None:
            target = await visit.read(visit.app.definitions.get, definition, tenant=visit.home)
        if visit.form.get("do") == "preview":
            row = await visit.read(visit.app.schedules.value, target, trigger, key, **options)
            return await _form(visit, FormState(visit.form), None, Schedule(row))
        enabled = visit.form.get("enabled") is not None
        made = await visit.act(visit.app.schedules.add, target, trigger, key, enabled=enabled, **options)
    except TidemillError as error:
        return await _again(visit, error, None)
    return visit.back(f"/schedules/{made.id}", f"Schedule {made.key} is saved.")


@pages.get("/schedules/{id}/edit", role=Role.ADMIN)
async def edit(visit: PageRequest) -> Response:
    """Show the form of an existing schedule."""
    refuse_to_look(visit)
    schedule = await _changeable(visit)
    return await _form(visit, FormState(schedule_form.shown(schedule)), schedule)


@pages.post("/schedules/{id}/edit", role=Role.ADMIN)
async def change(visit: PageRequest) -> Response:
    """Change the schedule from now on, or show a preview."""
    schedule = await _changeable(visit)
    rules, errors = schedule_form.read_rules(visit.form)
    if errors:
        return await _form(visit, FormState(visit.form, errors), schedule)
    try:
        options = visit.app.registry.get(schedule.task).options
        defaults = schedule_form.resets(schedule, options.queue, options.priority)
        changes = schedule_form.without_empty(rules, defaults)
        if scope := visit.form.get("scope"):
            changes["scope"] = scope
        if visit.form.get("do") == "preview":
            previewed = await visit.read(_as_changed, visit, schedule, changes)
            return await _form(visit, FormState(visit.form), schedule, previewed)
        await visit.act(visit.app.schedules.update, schedule.id, tenant=schedule.tenant, **changes)
    except TidemillError as error:
        return await _again(visit, error, schedule)
    return visit.back(
        f"/schedules/{schedule.id}", f"Schedule {schedule.key} is saved and effective immediately."
    )


def _as_changed(visit: PageRequest, schedule: Schedule, changes: Mapping[str, Any]) -> Schedule:
    """Return the schedule as the change would make it, without saving."""
    more = dict(changes)
    return Schedule(
        visit.app.schedules.value(
            schedule.task, more.pop("trigger"), schedule.key, tenant=schedule.tenant, **more
        )
    )


async def _changeable(visit: PageRequest) -> Schedule:
    schedule = await schedule_at(visit)
    if schedule.source is Source.CODE:
        raise Problem(
            409,
            None,
            f"Schedule {schedule.key} is declared in the code of {schedule.app or 'an app'}; change it there.",
        )
    return schedule


async def _again(visit: PageRequest, error: TidemillError, schedule: Schedule | None) -> Response:
    fields = {**schedule_form.fields_of(visit.form.get("kind")), "name": "task"}
    wrong = complaints(error, fields)
    if "" in wrong and not isinstance(error, BadSchedule):
        kind = type(error).__name__
        field = {"TaskNotFound": "task", "DefinitionNotFound": "definition", "ScheduleExists": "key"}.get(
            kind, ""
        )
        wrong = {field: wrong[""]}
    return await _form(visit, FormState(visit.form, wrong), schedule)


async def _form(
    visit: PageRequest, form: FormState, schedule: Schedule | None, previewed: Schedule | None = None
) -> Response:
    coming, changes = ([], []) if previewed is None else preview(previewed, PREVIEWED, visit.now())
    return visit.render(
        "schedule_edit.html",
        422 if form.is_wrong else 200,
        form=form,
        schedule=schedule,
        previewed=previewed,
        coming=coming,
        changes=changes,
        kinds=schedule_form.KINDS,
        week=schedule_form.WEEK,
        units=list(UNITS),
        zones=zone_names(),
        tasks=visit.app.registry.names(),
    )
