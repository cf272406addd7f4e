"""Signing in and out, and how the pages look to one person."""

from __future__ import annotations

from starlette.responses import RedirectResponse, Response

from tidemill.dashboard.pages import Pages
from tidemill.dashboard.sessions import THEMES
from tidemill.dashboard.visit import Visit, safe_next
from tidemill.rest.problems import Problem

pages = Pages()


@pages.get("/sign-in", role=None)
async def sign_in(visit: Visit) -> Response:
    """The form; or at once, for who follows the address that was printed when the server started."""
    token = visit.asked.get("token")
    if token is not None and visit.site.sessions.is_token(token):
        return _signed_in(visit, "")
    if await visit.site.session(visit.request) is not None:
        return RedirectResponse(visit.url("/"), 303)
    return visit.render("sign_in.html", next=safe_next(visit.asked.get("next")), wrong=token is not None)


@pages.post("/sign-in", role=None)
async def do_sign_in(visit: Visit) -> Response:
    """Look at the key, no more often than wrong ones are borne."""
    logins, text = visit.service.guard.logins, visit.form.get("key") or ""
    try:
        logins.check(visit.request)
    except Problem as problem:
        return visit.render("sign_in.html", 429, next=None, wrong=True, words=problem.detail)
    found = await visit.site.sessions.opens(text)
    if found is None:
        logins.failed(visit.request)
        return visit.render("sign_in.html", 401, next=safe_next(visit.form.get("next")), wrong=True)
    return _signed_in(visit, found[0])


def _signed_in(visit: Visit, key: str) -> Response:
    wanted = safe_next(visit.form.get("next")) or "/"
    response = RedirectResponse(visit.where("") + wanted, 303)
    visit.site.sessions.begin(response, visit.request, key)
    return response


@pages.post("/sign-out", role=None)
async def sign_out(visit: Visit) -> Response:
    """Forget who sits here."""
    response = RedirectResponse(visit.url("/sign-in", tenant=None), 303)
    visit.site.sessions.end(response, visit.request)
    return response


@pages.post("/theme", role=None)
async def choose_theme(visit: Visit) -> Response:
    """Light, dark, or as the system has it; kept in this browser."""
    wanted = visit.form.get("theme")
    if wanted not in THEMES:
        raise Problem(422, None, f"there is no such theme; there are {', '.join(THEMES)}")
    response = RedirectResponse(visit.where("") + (safe_next(visit.form.get("next")) or "/"), 303)
    visit.site.sessions.set_theme(response, visit.request, wanted)
    return response
