"""URLs for every path that the dashboard declares, one per object to show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from tidemill import App, JobState
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import FlowFilter

Things = Mapping[str, Sequence[str]]

FILES = frozenset({"/jobs/{id}/args", "/jobs/{id}/value"})
"""Paths that answer with a file to download."""

NO_PAGES = FILES | {"/live", "/go"}
"""Paths that a browser cannot open as a page."""

ASKED = {
    "/jobs/bulk": ("act", "acts"),
    "/leases/release": ("name", "leases"),
    "/tenants/pause": ("name", "tenants"),
    "/settings/unset": ("key", "settings"),
    "/settings/keys/revoke": ("id", "keys"),
}
"""Pages about an object named in the query: the parameter, and the kind of object."""

ROOMS = {"/queues/-/limit/{name:path}": "limits"}
"""The kind of object where the first path segment does not name it."""


def addresses(path: str, things: Things) -> list[str]:
    """The URLs of the page declared at this path, one per object."""
    if path in ASKED:
        word, room = ASKED[path]
        more = {"task": things["tasks"][0]} if room == "acts" else {}
        return [f"{path}?{urlencode({word: thing, **more})}" for thing in things[room]]
    if "{" not in path:
        return [path]
    room = ROOMS.get(path, path.split("/")[1])
    if room not in things:
        raise KeyError(f"{path}: say in the tests' worlds which {room} are shown there")
    before, _, after = path.partition("{")
    return [before + quote(thing, safe="") + after.partition("}")[2] for thing in things[room]]


def showroom_things(app: App) -> Things:
    """The objects of the showroom that have pages."""
    return {
        "acts": ["cancel"],
        "definitions": ["nightly-letter"],
        "errors": [group.fingerprint for group in app.stats.errors(tenant=ALL_TENANTS).rows][:1],
        "flows": [str(row.id) for row in app.store.flows(FlowFilter(ALL_TENANTS), limit=1)],
        "jobs": [
            _job(app, "running", "resize_photos"),
            _job(app, "dead_lettered"),
            _job(app, "review_needed"),
        ],
        "keys": [key.id for key in app.keys.list()][:1],
        "leases": ["duties"],
        "limits": ["queue/media"],
        "queues": ["media"],
        "schedules": [str(app.schedules.get("visitors", tenant="acme").id)],
        "settings": [setting.key for setting in app.control.settings()][:1],
        "tasks": ["resize_photos"],
        "tenants": ["acme"],
        "workers": [str(worker.id) for worker in app.store.workers() if worker.name == "mill-1"],
    }


def _job(app: App, status: str, task: str | None = None) -> str:
    more = {} if task is None else {"task": task}
    found = app.jobs.list(status=JobState(status), tenant=ALL_TENANTS, limit=1, **more)
    return str(found.items[0].id)
