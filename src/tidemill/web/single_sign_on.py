"""Single sign-on in a browser: the way to the provider and back, and sign-out.

A signed cookie binds the answer of the provider to the browser that began the sign-in. It is ``lax``, because the browser comes back
from another site; the session's own cookie stays ``strict``.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Any, NamedTuple

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tidemill.web.access_tokens import unavailable
from tidemill.web.oidc import IdentityProvider, SignedIn
from tidemill.web.oidc_errors import ProviderUnavailable, TokenRefused
from tidemill.web.problems import Problem
from tidemill.web.service import Service

COOKIE = "tidemill_sso"
LASTS = 600
"""Seconds within which a user must return from the provider."""

CALLBACK = "/sign-in/callback"


class Begun(NamedTuple):
    """A sign-in whose user is at the provider."""

    state: str
    nonce: str
    verifier: str
    next: str


class SingleSignOn:
    """The sign-ins of one site at one provider."""

    def __init__(self, service: Service, provider: IdentityProvider, secret: str) -> None:
        self.provider = provider
        self._service = service
        self._cookies = URLSafeTimedSerializer(secret, salt="tidemill-sso")

    async def start(self, request: Request, wanted: str) -> Response:
        """Send the user to the provider."""
        self._service.guard.logins.begin(request)
        state, nonce, verifier = (secrets.token_urlsafe(48) for _ in range(3))
        begun = Begun(state, nonce, verifier, wanted)
        try:
            url = await self.provider.authorization_url(
                redirect_uri=self.redirect_uri(request),
                state=begun.state,
                nonce=begun.nonce,
                verifier=begun.verifier,
            )
        except ProviderUnavailable:
            raise unavailable() from None
        response = RedirectResponse(url, 303)
        response.set_cookie(
            COOKIE,
            str(self._cookies.dumps(list(begun))),
            max_age=LASTS,
            path=_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="lax",
        )
        return response

    async def finish(self, request: Request) -> tuple[SignedIn, Begun]:
        """Return the user whom the provider sent back. Every other answer is refused and recorded."""
        query = request.query_params
        begun = self._begun(request)
        if begun is None or not hmac.compare_digest(query.get("state", "").encode(), begun.state.encode()):
            raise await self.refused(
                request, "this sign-in was not begun in this browser, or it took too long; sign in again"
            )
        issuer = query.get("iss", self.provider.settings.issuer)
        if issuer.rstrip("/") != self.provider.settings.issuer:
            raise await self.refused(request, "the answer comes from another provider")
        if "error" in query or not query.get("code"):
            raise await self.refused(
                request, f"the provider answered {query.get('error', 'without a code')[:60]!r}"
            )
        try:
            signed_in = await self.provider.redeem(
                query["code"],
                redirect_uri=self.redirect_uri(request),
                nonce=begun.nonce,
                verifier=begun.verifier,
            )
        except TokenRefused as error:
            raise await self.refused(request, str(error)) from None
        except ProviderUnavailable:
            raise unavailable() from None
        return signed_in, begun

    async def refused(self, request: Request, reason: str) -> Problem:
        """Count and record a failed sign-in, and return the error for the user."""
        await self._service.note_failed_sign_in(request, reason)
        self._service.guard.logins.failed(request)
        return Problem(403, "sign_in_refused", reason, title="You are not signed in.")

    def redirect_uri(self, request: Request) -> str:
        """Return the address to which the provider sends the user back."""
        return self.provider.settings.redirect_uri or self._address(request, CALLBACK)

    async def logout_url(self, request: Request) -> str | None:
        """Return the address at which the user also signs out of the provider."""
        return await self.provider.logout_url(self._address(request, "/sign-in"))

    def forget(self, response: Response, request: Request) -> None:
        """Delete the cookie of a sign-in that has ended."""
        response.delete_cookie(COOKIE, path=_path(request))

    def _begun(self, request: Request) -> Begun | None:
        try:
            values: Any = self._cookies.loads(request.cookies.get(COOKIE, ""), max_age=LASTS)
            return Begun(*values)
        except (BadData, TypeError):
            return None

    def _address(self, request: Request, path: str) -> str:
        given = self.provider.settings.redirect_uri
        if given is not None and given.endswith(CALLBACK):
            return given.removesuffix(CALLBACK) + path
        base = f"{request.scope.get('root_path', '')}{request.scope['tidemill.prefix']}"
        return f"{request.url.scheme}://{request.url.netloc}{base}{path}"


def _path(request: Request) -> str:
    return f"{request.scope.get('root_path', '')}{request.scope['tidemill.prefix']}" or "/"
