"""Pages of single sign-on: to the provider, back from it, and its logout messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from tidemill.dashboard.page_request import PageRequest, safe_next
from tidemill.dashboard.pages import PageRoutes
from tidemill.web.oidc_errors import ProviderUnavailable, TokenRefused
from tidemill.web.problems import Problem

if TYPE_CHECKING:
    from tidemill.web.single_sign_on import SingleSignOn

pages = PageRoutes()


@pages.get("/sign-in/sso", role=None)
async def start(request: PageRequest) -> Response:
    """Send the user to the provider."""
    return await _sso(request).start(request.http, safe_next(request.query.get("next")) or "/")


@pages.get("/sign-in/callback", role=None)
async def callback(request: PageRequest) -> Response:
    """Begin a session for the user whom the provider sent back.

    The response is a page that continues by itself. After a redirect from another site, browsers would not send the strict cookie.
    """
    sso = _sso(request)
    signed_in, begun = await sso.finish(request.http)
    cookie = await request.site.sessions.begin_signed_in(signed_in, begun.state)
    if cookie is None:
        raise await sso.refused(request.http, "this answer of the provider was used before; sign in again")
    url = request.where("") + (safe_next(begun.next) or "/")
    response = request.render("continue.html", title="You are signed in", url_to=url, words="Continue")
    request.site.sessions.keep(response, request.http, cookie)
    sso.forget(response, request.http)
    return response


@pages.post("/sign-out/backchannel", role=None)
async def backchannel(request: PageRequest) -> Response:
    """End the sessions that a logout message of the provider names."""
    sso = _sso(request)
    try:
        subject, session = await sso.provider.logged_out(request.form.get("logout_token") or "")
    except (TokenRefused, ProviderUnavailable) as error:
        request.service.guard.logins.failed(request.http)
        return Response(f'{{"error":"invalid_request","error_description":"{type(error).__name__}"}}', 400)
    issuer = sso.provider.settings.issuer
    await request.read(request.app.sessions.end_of_provider, issuer, subject, session)
    return Response(None, 200)


def _sso(request: PageRequest) -> SingleSignOn:
    sso = request.site.sso
    if sso is None:
        raise Problem(404, None, "This server has no single sign-on.")
    return sso
