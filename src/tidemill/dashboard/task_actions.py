"""Actions on tasks: pause, resume and runtime settings.

The paths contain no task name except at the end, because a name may contain any character, including slashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from tidemill.client.control import TASK_OVERRIDES, limit_of
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
from tidemill.dashboard.tasks import setting_of
from tidemill.domain.access import Role
from tidemill.domain.bounds import check_name
from tidemill.domain.records import PauseKind
from tidemill.errors import BadSettings, TaskNotFound, TidemillError
from tidemill.web.sessions import UndoForm

pages = PageRoutes()

NO_LIMIT = "no limit"
"""The unit that means no timeout."""


@pages.post("/tasks/-/pause", role=Role.OPERATOR, everywhere=True)
async def pause(request: PageRequest) -> Response:
    """Pause a task."""
    name = _named(request)
    await request.act(request.app.control.pause, PauseKind.TASK, name, reason=read_reason(request.form))
    return request.back(
        _address(name),
        f"Task {name} is paused; running jobs continue.",
        undo=UndoForm("/tasks/-/resume", {"name": name}),
    )


@pages.post("/tasks/-/resume", role=Role.OPERATOR, everywhere=True)
async def resume(request: PageRequest) -> Response:
    """Resume a task."""
    name = _named(request)
    ended = await request.act(request.app.control.resume, PauseKind.TASK, name)
    return request.back(
        _address(name), f"Jobs of task {name} start again.", undo=undo_resume("/tasks/-/pause", ended)
    )


@pages.get("/tasks/-/settings/{name:path}", role=Role.SUPER_ADMIN, everywhere=True)
async def settings(request: PageRequest) -> Response:
    """Show the runtime settings of a task, which override the code."""
    refuse_to_look(request)
    return await _settings(request, request.path["name"], None)


@pages.post("/tasks/-/settings/{name:path}", role=Role.SUPER_ADMIN, everywhere=True)
async def change_settings(request: PageRequest) -> Response:
    """Save the runtime settings of a task. Empty fields return to the values in code."""
    name = request.path["name"]
    check_name("task", name)
    form = request.form
    wanted: dict[str, Any] = {}
    errors: dict[str, str] = {}
    concurrent: int | None = None
    try:
        if (attempts := read_whole(form, "max_attempts", least=1, most=10_000)) is not None:
            wanted["max_attempts"] = attempts
        if form.get("timeout_unit") == NO_LIMIT:
            wanted["timeout"] = None
        elif (timeout := read_span(form, "timeout")) is not None:
            wanted["timeout"] = timeout.total_seconds()
        if (delay := read_span(form, "retry_delay")) is not None:
            wanted["retry_delay"] = delay.total_seconds()
        concurrent = read_whole(form, "max_concurrent", least=0, most=1_000_000)
        await request.act(_set, request, name, wanted, concurrent)
    except FormError as wrong:
        errors[wrong.field] = wrong.words
    except TidemillError as error:
        errors = complaints(error, {})
        field = next((name for name in ("retry_delay", "timeout") if name in errors.get("", "")), None)
        if field is not None:
            errors = {field: errors[""]}
    if errors:
        return await _settings(request, name, FormState(form, errors))
    return request.back(_address(name), f"Task {name}: saved. Workers apply it within seconds.")


def _set(request: PageRequest, name: str, wanted: Mapping[str, Any], concurrent: int | None) -> None:
    values = dict(wanted) if concurrent is None else {**wanted, "max_concurrent": concurrent}
    request.app.control.set_task(name, values, [option for option in TASK_OVERRIDES if option not in values])


async def _settings(request: PageRequest, name: str, form: FormState | None) -> Response:
    try:
        check_name("task", name)
    except BadSettings:
        raise TaskNotFound(f"{name[:200]!r} is not a task's name", name=name) from None
    registry = request.app.registry
    shown = form or FormState(await request.read(_shown, request, name))
    return request.render(
        "task_settings.html",
        422 if shown.is_wrong else 200,
        name=name,
        task=registry.get(name) if name in registry else None,
        form=shown,
        units=[*UNITS, NO_LIMIT],
        delay_units=[*UNITS],
    )


def _shown(request: PageRequest, name: str) -> dict[str, Any]:
    setting, rule = setting_of(request, name), _pinned(request, name)
    values: dict[str, Any] = {"max_attempts": setting.get("max_attempts"), "max_concurrent": rule}
    if "timeout" in setting:
        timeout = setting["timeout"]
        values |= {"timeout_unit": NO_LIMIT} if timeout is None else shown_span(timeout, "timeout")
    if "retry_delay" in setting:
        values |= shown_span(setting["retry_delay"], "retry_delay")
    return values


def _pinned(request: PageRequest, name: str) -> int | None:
    """Return the limit that an operator has set for a task."""
    rule = limit_of(name, request.inspection.limit_rules())
    return None if rule is None else rule.max


def _named(request: PageRequest) -> str:
    name = request.form.get("name") or ""
    check_name("task", name)
    return name


def _address(name: str) -> str:
    return f"/tasks/{quote(name)}"
