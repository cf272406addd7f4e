"""Settings page: installation, alert thresholds and runtime settings."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from starlette.responses import Response

from tidemill.client.control import KNOWN_SETTINGS, shown_value
from tidemill.client.stats.loads import is_living
from tidemill.dashboard.confirmation import ask
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.alerts import PREFIX, Thresholds, read_thresholds
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.masks import HIDDEN
from tidemill.domain.records import Setting
from tidemill.errors import TidemillError, UsageError
from tidemill.web.problems import Problem

pages = PageRoutes()

_ALERTS = {
    "failure_rate": "share of ended jobs that failed",
    "failure_sample": "minimum number of ended jobs for a failure rate",
    "stuck_after": "seconds a job may run without progress",
    "queue_depth": "jobs waiting in one queue",
    "queue_age": "seconds the oldest job may wait",
    "orphans": "jobs of workers that are gone",
    "dead_letters": "newly dead-lettered jobs within an hour",
    "lost_workers": "workers that crashed or lost their lease within 15 minutes",
    "leader_fresh": "seconds; a leader whose heartbeat is younger is alive",
    "leader_stuck": "seconds within which a leader should have done a duty",
    "schedule_late": "seconds since a schedule should have fired",
    "flow_stalled": "seconds a flow with a pending job may make no progress",
    "cascade_age": "seconds within which a job that can no longer start must be skipped",
    "signal_age": "seconds within which a job must take a signal",
    "unknown_task": "seconds a job of a task that no worker knows may wait",
}

_KEPT = {
    "memory": "completed jobs for 15 minutes, other ends for an hour, while a worker runs",
    "sqlite": "ended jobs until retention archives them",
    "postgresql": "ended jobs until retention archives them",
}


class ThresholdRow(NamedTuple):
    """An alert threshold with its current and default value."""

    key: str
    words: str
    value: float
    usual: float


class SettingRow(NamedTuple):
    """A setting, with its value masked if necessary."""

    setting: Setting
    value: object


@pages.get("/settings", role=Role.VIEWER)
async def settings(request: PageRequest) -> Response:
    """Show the installation, and to super admins also settings."""
    return await show(request)


@pages.post("/settings/set", role=Role.SUPER_ADMIN, everywhere=True)
async def set_setting(request: PageRequest) -> Response:
    """Write a setting. The value is parsed as JSON if possible, else stored as text."""
    typed = {name: request.form.get(name) or "" for name in ("key", "value", "description")}
    if not typed["key"] or not typed["value"]:
        return await show(request, 422, typed=typed, wrong="give a key and a value")
    try:
        value = _read(typed["value"])
        await request.act(
            request.app.control.set, typed["key"], value, description=request.form.get("description")
        )
    except UsageError as error:
        return await show(request, 422, typed=typed, wrong=error.message)
    return request.back("/settings", f"{typed['key']} is set; workers apply it within seconds.")


@pages.get("/settings/unset", role=Role.SUPER_ADMIN, everywhere=True)
async def ask_unset(request: PageRequest) -> Response:
    """Ask for confirmation before a setting is removed."""
    key = request.query.get("key") or ""
    settings = await request.read(request.app.control.settings)
    setting = next((candidate for candidate in settings if candidate.key == key), None)
    if setting is None:
        raise Problem(404, None, f"there is no setting {key[:100]!r}")
    return ask(
        request,
        title=f"Remove {key}?",
        words=f"It is {json.dumps(shown_value(setting))[:200]} now. After removal every worker uses the default within seconds.",
        action="/settings/unset",
        fields={"key": key},
        button="Remove it",
        back="/settings",
    )


@pages.post("/settings/unset", role=Role.SUPER_ADMIN, everywhere=True)
async def unset(request: PageRequest) -> Response:
    """Remove a setting, so that its default applies again."""
    key = request.form.get("key") or ""
    there = await request.act(request.app.control.unset, key)
    return request.back("/settings", f"{key} is removed." if there else f"{key} was not set.", good=there)


async def show(
    request: PageRequest,
    status: int = 200,
    *,
    typed: dict[str, str] | None = None,
    wrong: str | None = None,
) -> Response:
    """Render the page, optionally with invalid form input and its error message."""
    values = await request.read(_look, request)
    if typed is None:
        stored = next(
            (row for row in values["settings"] or () if row.setting.key == request.query.get("key")), None
        )
        typed = {
            "key": request.query.get("key") or "",
            "value": ""
            if stored is None or stored.value == HIDDEN
            else json.dumps(stored.value, ensure_ascii=False),
            "description": "" if stored is None else stored.setting.description or "",
        }
    return request.render(
        "settings.html",
        status,
        typed=typed,
        wrong=wrong,
        known_settings=KNOWN_SETTINGS,
        **values,
    )


def _look(request: PageRequest) -> dict[str, Any]:
    whole = request.identity.tenant == ALL_TENANTS
    rules = request.identity.role.allows(Role.SUPER_ADMIN)
    stored = request.app.control.settings() if whole else []
    return {
        "facts": _environment(request) if whole else _versions(),
        "thresholds": _thresholds(stored) if whole else None,
        "settings": [SettingRow(setting, shown_value(setting)) for setting in stored]
        if whole and rules
        else None,
    }


def _thresholds(stored: Sequence[Setting]) -> list[ThresholdRow]:
    usual = Thresholds()
    now, _ = read_thresholds({setting.key: setting.value for setting in stored})
    return [
        ThresholdRow(
            PREFIX + field.name,
            _ALERTS.get(field.name, ""),
            getattr(now, field.name),
            getattr(usual, field.name),
        )
        for field in fields(Thresholds)
    ]


def _versions() -> dict[str, str]:
    try:
        ours = version("tidemill")
    except PackageNotFoundError:
        ours = "unknown"
    return {"Tidemill": ours, "Python": platform.python_version()}


def _environment(request: PageRequest) -> dict[str, str]:
    inspection = request.inspection
    kind = urlsplit(inspection.url).scheme
    rows = _versions()
    running = sorted(
        {worker.version for worker in inspection.workers() if is_living(worker, request.now())} - {""}
    )
    if running:
        rows["Workers run"] = ", ".join(running)
    rows["Store"] = kind
    # Only administrators see where the store is.
    if request.identity.role.allows(Role.ADMIN):
        rows["Where"] = inspection.url
        size = _size(inspection.url) if kind == "sqlite" else None
        if size is not None:
            rows["Size"] = f"{size / 1e6:,.1f} MB"
    try:
        schema = inspection.schema()
        behind = f", {len(schema.pending)} to be applied" if schema.pending else ""
        rows["Schema"] = f"version {schema.version} of {schema.wanted}{behind}"
    except TidemillError as error:
        rows["Schema"] = error.message
    rows["Keeps"] = _KEPT.get(kind, "ended jobs until retention archives them")
    rows["Tasks known here"] = f"{len(request.app.registry):,}"
    return rows


def _size(url: str) -> int | None:
    """Return the size of an SQLite file and its WAL in bytes."""
    path = Path(unquote(urlsplit(url).path)[1:])
    try:
        return sum(
            file.stat().st_size for file in (path, path.with_name(path.name + "-wal")) if file.exists()
        )
    except OSError:
        return None


def _read(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value
