"""Form to create and change schedules, with a preview before saving."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from zoneinfo import available_timezones

from starlette.responses import Response

from tidemill.client.schedules.schedule import Schedule
from tidemill.dashboard import calendar_form, schedule_form
from tidemill.dashboard.argument_form import PREFIX, Argument, arguments_of
from tidemill.dashboard.form_state import UNITS, FormState, complaints, refuse_to_look
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.dashboard.schedule_preview import NO_PREVIEW, SchedulePreview, preview_row
from tidemill.dashboard.schedules import schedule_at
from tidemill.domain.access import Role
from tidemill.domain.schedules import ScheduleRow, Source
from tidemill.errors import BadSchedule, TidemillError
from tidemill.web.problems import Problem

pages = PageRoutes()


@pages.get("/schedules/new", role=Role.ADMIN)
async def new(request: PageRequest) -> Response:
    """Show an empty form, with the task in the query preselected."""
    refuse_to_look(request)
    values = {name: request.query.get(name) for name in ("task", "key")}
    return await _form(request, schedule_form.blank(values), None)


@pages.post("/schedules/new", role=Role.ADMIN)
async def add(request: PageRequest) -> Response:
    """Save the schedule, or show a preview."""
    key, task = request.form.get("key"), request.form.get("task")
    if request.form.get("do") == "task":
        return await _form(request, FormState(request.form), None)
    arguments = _arguments(request, task)
    rules, errors = schedule_form.read_rules(request.form, arguments)
    definition = request.form.get("definition")
    if key is None:
        errors["key"] = "give it a name"
    if (task is None) == (definition is None):
        errors["task"] = "choose a task, or give the key of a definition under More; one of them"
    if errors or key is None:
        return await _form(request, FormState(request.form, errors), None)
    rules = schedule_form.without_empty(rules, None)
    options = {**rules, "scope": request.form.get("scope"), "tenant": request.home}
    trigger = options.pop("trigger")
    try:
        target: Any = task
        if definition is not None:
            target = await request.read(request.app.definitions.get, definition, tenant=request.home)
        if request.form.get("do") == "preview":
            row = await request.read(request.app.schedules.value, target, trigger, key, **options)
            return await _form(request, FormState(request.form), None, preview_row(request, row))
        enabled = request.form.get("enabled") is not None
        made = await request.act(request.app.schedules.add, target, trigger, key, enabled=enabled, **options)
    except TidemillError as error:
        return await _again(request, error, None)
    return request.back(f"/schedules/{made.id}", f"Schedule {made.key} is saved.")


@pages.get("/schedules/{id}/edit", role=Role.ADMIN)
async def edit(request: PageRequest) -> Response:
    """Show the form of an existing schedule, with its arguments."""
    refuse_to_look(request)
    schedule = await _changeable(request)
    if request.hides_arguments:
        request.need("jobs.arguments")
    arguments = _arguments(request, schedule.task)
    return await _form(request, FormState(schedule_form.shown(schedule, arguments)), schedule)


@pages.post("/schedules/{id}/edit", role=Role.ADMIN)
async def change(request: PageRequest) -> Response:
    """Change the schedule from now on, or show a preview."""
    schedule = await _changeable(request)
    rules, errors = schedule_form.read_rules(request.form, _arguments(request, schedule.task))
    if errors:
        return await _form(request, FormState(request.form, errors), schedule)
    try:
        options = request.app.registry.get(schedule.task).options
        defaults = schedule_form.resets(schedule, options.queue, options.priority)
        changes = schedule_form.without_empty(rules, defaults)
        if scope := request.form.get("scope"):
            changes["scope"] = scope
        if request.form.get("do") == "preview":
            previewed = await request.read(_as_changed, request, schedule, changes)
            return await _form(request, FormState(request.form), schedule, preview_row(request, previewed))
        await request.act(request.app.schedules.update, schedule.id, tenant=schedule.tenant, **changes)
    except TidemillError as error:
        return await _again(request, error, schedule)
    return request.back(
        f"/schedules/{schedule.id}", f"Schedule {schedule.key} is saved and effective immediately."
    )


def _as_changed(request: PageRequest, schedule: Schedule, changes: Mapping[str, Any]) -> ScheduleRow:
    """Return the schedule as the change would make it, without saving."""
    more = dict(changes)
    return request.app.schedules.value(
        schedule.task, more.pop("trigger"), schedule.key, tenant=schedule.tenant, **more
    )


async def _changeable(request: PageRequest) -> Schedule:
    schedule = await schedule_at(request)
    if schedule.source is Source.CODE:
        raise Problem(
            409,
            None,
            f"Schedule {schedule.key} is declared in the code of {schedule.app or 'an app'}; change it there.",
        )
    return schedule


async def _again(request: PageRequest, error: TidemillError, schedule: Schedule | None) -> Response:
    fields = {**schedule_form.fields_of(request.form.get("kind")), "name": "task"}
    arguments = _arguments(request, request.form.get("task") if schedule is None else schedule.task)
    by_field = arguments and request.form.get("args") is None
    wrong = complaints(error, fields, arguments=PREFIX if by_field else None)
    own_fields = {argument.field for argument in arguments}
    for field in [field for field in wrong if field.startswith(PREFIX) and field not in own_fields]:
        wrong["args"] = f"{field.removeprefix(PREFIX)}: {wrong.pop(field)}"
    if "" in wrong and not isinstance(error, BadSchedule):
        kind = type(error).__name__
        field = {"TaskNotFound": "task", "DefinitionNotFound": "definition", "ScheduleExists": "key"}.get(
            kind, ""
        )
        wrong = {field: wrong[""]}
    return await _form(request, FormState(request.form, wrong), schedule)


async def _form(
    request: PageRequest, form: FormState, schedule: Schedule | None, previewed: SchedulePreview = NO_PREVIEW
) -> Response:
    task = schedule.task if schedule is not None else form.value("task")
    return request.render(
        "schedule_edit.html",
        422 if form.is_wrong else 200,
        form=form,
        schedule=schedule,
        arguments=_arguments(request, task),
        task=request.app.registry.get(task) if task in request.app.registry else None,
        preview=previewed,
        days_open=calendar_form.is_set(form),
        kinds=schedule_form.KINDS,
        week=schedule_form.WEEK,
        units=list(UNITS),
        zones=zone_names(),
        tasks=request.app.registry.names(),
    )


def _arguments(request: PageRequest, task: str | None) -> list[Argument]:
    """Return the arguments of a task; none if this server does not know it."""
    if task is None or task not in request.app.registry:
        return []
    return arguments_of(request.app.registry.get(task).arguments.schema())


_ODD = ("posix/", "right/", "SystemV/", "Etc/", "posixrules", "localtime", "Factory")


@lru_cache(maxsize=1)
def zone_names() -> tuple[str, ...]:
    """Return names such as ``Europe/Berlin``, sorted, with UTC first."""
    names = sorted(name for name in available_timezones() if "/" in name and not name.startswith(_ODD))
    return ("UTC", *names)
