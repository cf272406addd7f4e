"""Settings page: installation, alert thresholds, runtime settings and keys."""

from __future__ import annotations

import json
import platform
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from starlette.responses import Response

from tidemill.client.access import HIDDEN
from tidemill.client.control import KNOWN_SETTINGS, shown_value
from tidemill.client.documents import key_state
from tidemill.client.stats.loads import is_living
from tidemill.dashboard.confirmation import ask
from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Key, Role
from tidemill.domain.alerts import PREFIX, Thresholds, read_thresholds
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.records import Setting
from tidemill.errors import TidemillError, UsageError
from tidemill.rest.problems import Problem

pages = PageRoutes()

EXPIRIES = {
    "": "never",
    "1": "in a day",
    "7": "in a week",
    "30": "in 30 days",
    "90": "in 90 days",
    "365": "in a year",
}
"""Lifetimes of a new key in days, with their labels."""

_ALERTS = {
    "failure_rate": "share of ended jobs that failed",
    "failure_sample": "minimum number of ended jobs for a failure rate",
    "stuck_after": "seconds a job may be held",
    "queue_depth": "jobs waiting in one queue",
    "queue_age": "seconds the oldest job may wait",
    "orphans": "jobs of workers that are gone",
    "dead_letters": "newly dead-lettered jobs within an hour",
    "leader_fresh": "seconds; a leader whose heartbeat is younger is alive",
    "leader_stuck": "seconds within which a leader should have done a duty",
}

_KEPT = {
    "memory": "completed jobs for 15 minutes, other ends for an hour, while a worker runs",
    "sqlite": "ended jobs until they are archived or deleted",
    "postgresql": "ended jobs until they are archived or deleted",
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


class KeyRow(NamedTuple):
    """A key and its state: active, expired or revoked."""

    key: Key
    state: str


@pages.get("/settings", role=Role.VIEWER)
async def settings(visit: PageRequest) -> Response:
    """Show the installation, and to super admins also settings and keys."""
    return await show(visit)


@pages.post("/settings/set", role=Role.SUPER_ADMIN, everywhere=True)
async def set_setting(visit: PageRequest) -> Response:
    """Write a setting. The value is parsed as JSON if possible, else stored as text."""
    typed = {name: visit.form.get(name) or "" for name in ("key", "value", "description")}
    if not typed["key"] or not typed["value"]:
        return await show(visit, 422, typed=typed, wrong="give a key and a value")
    try:
        value = _read(typed["value"])
        await visit.act(visit.app.control.set, typed["key"], value, description=visit.form.get("description"))
    except UsageError as error:
        return await show(visit, 422, typed=typed, wrong=error.message)
    return visit.back("/settings", f"{typed['key']} is set; workers apply it within seconds.")


@pages.get("/settings/unset", role=Role.SUPER_ADMIN, everywhere=True)
async def ask_unset(visit: PageRequest) -> Response:
    """Ask for confirmation before a setting is removed."""
    key = visit.asked.get("key") or ""
    found = await visit.read(visit.app.control.settings)
    setting = next((each for each in found if each.key == key), None)
    if setting is None:
        raise Problem(404, None, f"there is no setting {key[:100]!r}")
    return ask(
        visit,
        title=f"Remove {key}?",
        words=f"It is {json.dumps(shown_value(setting))[:200]} now. After removal every worker uses the default within seconds.",
        action="/settings/unset",
        fields={"key": key},
        button="Remove it",
        back="/settings",
    )


@pages.post("/settings/unset", role=Role.SUPER_ADMIN, everywhere=True)
async def unset(visit: PageRequest) -> Response:
    """Remove a setting, so that its default applies again."""
    key = visit.form.get("key") or ""
    there = await visit.act(visit.app.control.unset, key)
    return visit.back("/settings", f"{key} is removed." if there else f"{key} was not set.", good=there)


async def show(
    visit: PageRequest,
    status: int = 200,
    *,
    typed: dict[str, str] | None = None,
    wrong: str | None = None,
    key_typed: dict[str, str] | None = None,
    key_wrong: str | None = None,
) -> Response:
    """Render the page, optionally with invalid form input and its error message."""
    found = await visit.read(_look, visit)
    if typed is None:
        known = next(
            (row for row in found["settings"] or () if row.setting.key == visit.asked.get("key")), None
        )
        typed = {
            "key": visit.asked.get("key") or "",
            "value": ""
            if known is None or known.value == HIDDEN
            else json.dumps(known.value, ensure_ascii=False),
            "description": "" if known is None else known.setting.description or "",
        }
    return visit.render(
        "settings.html",
        status,
        typed=typed,
        wrong=wrong,
        key_typed=key_typed
        or {"name": "", "role": "viewer", "tenant": visit.asked.get("tenant") or "", "days": ""},
        key_wrong=key_wrong,
        roles=[role.value for role in Role],
        expiries=EXPIRIES,
        known_settings=KNOWN_SETTINGS,
        **found,
    )


def _look(visit: PageRequest) -> dict[str, Any]:
    whole = visit.identity.tenant == ALL_TENANTS
    rules = visit.identity.role.allows(Role.SUPER_ADMIN)
    stored = visit.app.store.settings() if whole else []
    return {
        "facts": _facts(visit) if whole else _versions(),
        "thresholds": _thresholds(stored) if whole else None,
        "settings": [SettingRow(each, shown_value(each)) for each in stored] if whole and rules else None,
        "keys": known_keys(visit) if rules else None,
    }


def known_keys(visit: PageRequest) -> list[KeyRow]:
    """Return the visible keys, active ones first."""
    rows = [
        KeyRow(key, key_state(key, visit.now()))
        for key in visit.app.keys.list()
        if visit.tenant in (ALL_TENANTS, key.tenant)
    ]
    return sorted(rows, key=lambda row: row.state != "active")


def _thresholds(stored: list[Setting]) -> list[ThresholdRow]:
    usual = Thresholds()
    now, _ = read_thresholds({each.key: each.value for each in stored})
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


def _facts(visit: PageRequest) -> dict[str, str]:
    store = visit.app.store
    kind = urlsplit(store.url).scheme
    facts = _versions()
    running = sorted({each.version for each in store.workers() if is_living(each, visit.now())} - {""})
    if running:
        facts["Workers run"] = ", ".join(running)
    facts["Store"] = kind
    # Only administrators see where the store is.
    if visit.identity.role.allows(Role.ADMIN):
        facts["Where"] = store.url
        size = _size(store.url) if kind == "sqlite" else None
        if size is not None:
            facts["Size"] = f"{size / 1e6:,.1f} MB"
    try:
        schema = store.schema()
        behind = f", {len(schema.pending)} to be applied" if schema.pending else ""
        facts["Schema"] = f"version {schema.version} of {schema.wanted}{behind}"
    except TidemillError as error:
        facts["Schema"] = error.message
    facts["Keeps"] = _KEPT.get(kind, "ended jobs until they are archived or deleted")
    facts["Tasks known here"] = f"{len(visit.app.registry):,}"
    return facts


def _size(url: str) -> int | None:
    """Return the size of an SQLite file and its WAL in bytes."""
    path = Path(unquote(urlsplit(url).path)[1:])
    try:
        return sum(
            each.stat().st_size for each in (path, path.with_name(path.name + "-wal")) if each.exists()
        )
    except OSError:
        return None


def _read(text: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value
