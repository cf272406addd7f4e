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
async def sign_in(request: PageRequest) -> Response:
    """Show the form, or sign in immediately with the token from the address that the server printed at start."""
    token = request.query.get("token")
    if token is not None and request.site.sessions.is_token(token):
        return _signed_in(request, "")
    if await request.site.session(request.http) is not None:
        return RedirectResponse(request.url("/"), 303)
    return await _form(request, 200, next=safe_next(request.query.get("next")), wrong=token is not None)


@pages.post("/sign-in", role=None)
async def do_sign_in(request: PageRequest) -> Response:
    """Check the key. Failed attempts are counted per client address."""
    opened = await request.site.sessions.opens(request.form.get("key") or "")
    if opened is None:
        try:
            request.service.guard.logins.failed(request.http)
        except Problem as problem:
            return await _form(request, 429, next=None, wrong=True, words=problem.detail)
        return await _form(request, 401, next=safe_next(request.form.get("next")), wrong=True)
    return _signed_in(request, opened[0])


async def _form(request: PageRequest, status: int, **values: Any) -> Response:
    """Render the sign-in page.

    It offers only methods that exist: a mounted site has no token, and a new store has no key.
    """
    values["no_key"] = not await request.read(request.app.keys.any)
    return request.render("sign_in.html", status, has_token=request.site.sessions.has_token, **values)


def _signed_in(request: PageRequest, key: str) -> Response:
    wanted = safe_next(request.form.get("next")) or "/"
    response = RedirectResponse(request.where("") + wanted, 303)
    request.site.sessions.begin(response, request.http, key)
    return response


@pages.post("/sign-out", role=None)
async def sign_out(request: PageRequest) -> Response:
    """End the session in this browser."""
    response = RedirectResponse(request.url("/sign-in", tenant=None, store=None), 303)
    request.site.sessions.end(response, request.http)
    return response


@pages.post("/theme", role=None)
async def choose_theme(request: PageRequest) -> Response:
    """Store the chosen theme in this browser."""
    wanted = request.form.get("theme")
    if wanted not in THEMES:
        raise Problem(422, None, f"unknown theme; expected one of {', '.join(THEMES)}")
    response = RedirectResponse(request.where("") + (safe_next(request.form.get("next")) or "/"), 303)
    request.site.sessions.set_theme(response, request.http, wanted)
    return response
