"""Sign-in, sign-out and theme selection."""

from __future__ import annotations

from typing import Any

from starlette.responses import RedirectResponse, Response

from tidemill.dashboard.page_request import PageRequest, safe_next
from tidemill.dashboard.pages import PageRoutes
from tidemill.web.problems import Problem
from tidemill.web.sessions import THEMES

pages = PageRoutes()


@pages.get("/sign-in", role=None)
async def sign_in(visit: PageRequest) -> Response:
    """Show the form, or sign in immediately with the token from the address that the server printed at start."""
    token = visit.query.get("token")
    if token is not None and visit.site.sessions.is_token(token):
        return _signed_in(visit, "")
    if await visit.site.session(visit.request) is not None:
        return RedirectResponse(visit.url("/"), 303)
    return await _form(visit, 200, next=safe_next(visit.query.get("next")), wrong=token is not None)


@pages.post("/sign-in", role=None)
async def do_sign_in(visit: PageRequest) -> Response:
    """Check the key. Failed attempts are counted per client address."""
    opened = await visit.site.sessions.opens(visit.form.get("key") or "")
    if opened is None:
        try:
            visit.service.guard.logins.failed(visit.request)
        except Problem as problem:
            return await _form(visit, 429, next=None, wrong=True, words=problem.detail)
        return await _form(visit, 401, next=safe_next(visit.form.get("next")), wrong=True)
    return _signed_in(visit, opened[0])


async def _form(visit: PageRequest, status: int, **values: Any) -> Response:
    """Render the sign-in page.

    It offers only methods that exist: a mounted site has no token, and a new store has no key.
    """
    values["no_key"] = not await visit.read(visit.app.keys.any)
    return visit.render("sign_in.html", status, has_token=visit.site.sessions.has_token, **values)


def _signed_in(visit: PageRequest, key: str) -> Response:
    wanted = safe_next(visit.form.get("next")) or "/"
    response = RedirectResponse(visit.where("") + wanted, 303)
    visit.site.sessions.begin(response, visit.request, key)
    return response


@pages.post("/sign-out", role=None)
async def sign_out(visit: PageRequest) -> Response:
    """End the session in this browser."""
    response = RedirectResponse(visit.url("/sign-in", tenant=None, store=None), 303)
    visit.site.sessions.end(response, visit.request)
    return response


@pages.post("/theme", role=None)
async def choose_theme(visit: PageRequest) -> Response:
    """Store the chosen theme in this browser."""
    wanted = visit.form.get("theme")
    if wanted not in THEMES:
        raise Problem(422, None, f"unknown theme; expected one of {', '.join(THEMES)}")
    response = RedirectResponse(visit.where("") + (safe_next(visit.form.get("next")) or "/"), 303)
    visit.site.sessions.set_theme(response, visit.request, wanted)
    return response
