"""Chosen columns and saved views of the jobs page, kept in the reader's browser."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.responses import RedirectResponse, Response

from tidemill.dashboard.page_request import PageRequest, safe_next
from tidemill.dashboard.pages import PageRoutes
from tidemill.web.problems import Problem
from tidemill.web.sessions import COLUMNS as CHOSEN

pages = PageRoutes()

COLUMNS = {
    "args": "Arguments",
    "queue": "Queue",
    "tenant": "Tenant",
    "priority": "Priority",
    "attempt": "Attempt",
    "age": "Age",
    "took": "Took",
}
"""The columns that the reader may choose."""

USUAL = ("args", "queue", "tenant", "attempt", "age", "took")
MOST_VIEWS = 12
LONGEST_NAME = 40
LONGEST_QUERY = 200

_VIEWS = "job_views"


def columns(request: PageRequest) -> list[str]:
    """Return the chosen columns: those of the address, of the browser, or the usual ones."""
    chosen = request.query.get("columns") or request.site.sessions.preference(request.http, CHOSEN)
    wanted = {name for name in chosen.split(",") if name in COLUMNS} or set(USUAL)
    return [name for name in COLUMNS if name in wanted]


def views(request: PageRequest) -> dict[str, str]:
    """Return the saved views: queries of the jobs page by name."""
    try:
        stored: Any = json.loads(request.site.sessions.preference(request.http, _VIEWS) or "{}")
    except ValueError:
        return {}
    if not isinstance(stored, dict):
        return {}
    return {str(name): str(query) for name, query in list(stored.items())[:MOST_VIEWS]}


def query_here(request: PageRequest) -> str:
    """Return the query of this page that a view saves."""
    left_out = ("cursor", "job", "store", "q")
    return urlencode([pair for pair in request.query.items() if pair[0] not in left_out])


@pages.post("/jobs/view", role=None)
async def keep(request: PageRequest) -> Response:
    """Keep the chosen columns, save a view, or remove one."""
    form, sessions = request.form, request.site.sessions
    response = RedirectResponse(request.where("") + (safe_next(form.get("next")) or "/jobs"), 303)
    match form.get("do"):
        case "columns":
            sessions.prefer(response, request.http, CHOSEN, ",".join(form.all("column")))
        case "save":
            name = (form.get("name") or "View")[:LONGEST_NAME]
            query = form.get("query") or ""
            if len(query) > LONGEST_QUERY:
                raise Problem(422, None, f"the filter of a view has at most {LONGEST_QUERY} characters")
            kept = {**views(request), name: urlencode(parse_qsl(query))}
            sessions.prefer(
                response, request.http, _VIEWS, json.dumps(dict(list(kept.items())[-MOST_VIEWS:]))
            )
        case "remove":
            kept = {name: query for name, query in views(request).items() if name != form.get("name")}
            sessions.prefer(response, request.http, _VIEWS, json.dumps(kept))
        case _:
            raise Problem(422, None, "expected one of columns, save, remove")
    return response
