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
    if await request.site.session(request.http) is not None:
        return RedirectResponse(request.url("/"), 303)
    if token is not None and (cookie := await request.site.sessions.open_by_token(token)) is not None:
        return _signed_in(request, cookie)
    return await _form(request, 200, next=safe_next(request.query.get("next")), wrong=token is not None)


@pages.post("/sign-in", role=None)
async def do_sign_in(request: PageRequest) -> Response:
    """Check the key. Failed attempts are counted per client address."""
    cookie = await request.site.sessions.open_by_key(request.form.get("key") or "")
    if cookie is None:
        await request.service.note_failed_sign_in(request.http, "invalid key or token")
        try:
            request.service.guard.logins.failed(request.http)
        except Problem as problem:
            return await _form(request, 429, next=None, wrong=True, words=problem.detail)
        return await _form(request, 401, next=safe_next(request.form.get("next")), wrong=True)
    return _signed_in(request, cookie)


async def _form(request: PageRequest, status: int, **values: Any) -> Response:
    """Render the sign-in page.

    It offers only methods that exist: a mounted site has no token, and a new store has no key.
    """
    values["no_key"] = not await request.read(request.app.keys.any)
    values["has_sso"] = request.site.sso is not None
    return request.render("sign_in.html", status, has_token=await request.site.sessions.has_token(), **values)


def _signed_in(request: PageRequest, cookie: str) -> Response:
    wanted = safe_next(request.form.get("next")) or "/"
    response = RedirectResponse(request.where("") + wanted, 303)
    request.site.sessions.keep(response, request.http, cookie)
    return response


@pages.post("/sign-out", role=None)
async def sign_out(request: PageRequest) -> Response:
    """End the session. A user of single sign-on continues at the provider, to sign out there as well."""
    url = None
    if request.site.sso is not None and await request.site.sessions.is_of_provider(request.http):
        url = await request.site.sso.logout_url(request.http)
    if url is None:
        response: Response = RedirectResponse(request.url("/sign-in", tenant=None, store=None), 303)
    else:
        # A redirect would be blocked: the content policy restricts forms and their redirects to this site.
        words = "Sign out at the provider as well"
        response = request.render("continue.html", title="You are signed out", url_to=url, words=words)
    await request.site.sessions.end(response, request.http)
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
