"""Sign-in sessions in signed cookies.

A cookie contains the id of a key, never its secret. Every request checks the cookie and the key, so revoking a key ends
its sessions within seconds. The server signs cookies with a secret. If none is configured, it uses the one-time token or
a random secret, and sessions end with the server.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import Response

from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import BadSettings

if TYPE_CHECKING:
    from tidemill.app import App

COOKIE = "tidemill_session"
MESSAGE = "tidemill_said"
THEME = "tidemill_theme"
STORE = "tidemill_store"
LASTS = 12 * 60 * 60
"""Lifetime of a session in seconds."""

SECRET = "TIDEMILL_SESSION_SECRET"  # noqa: S105  (the name of a variable, not a secret)
"""Environment variable with the session secret, if the settings have none."""

LEAST_SECRET = 16
"""Minimum number of characters of a secret. A guessed secret could be used to forge sessions."""

THEMES = ("system", "light", "dark")
_TOKEN = "one-time token"  # noqa: S105  (a name for the audit log, not a secret)


class Session(NamedTuple):
    """One sign-in: its identity, and the CSRF token of its forms."""

    identity: Identity
    csrf: str


class Sessions:
    """Creates and reads the cookies of one site."""

    def __init__(self, app: App, *, secret: str | None, token: str | None) -> None:
        self._app = app
        self._token = token
        given = secret or os.environ.get(SECRET)
        if given and len(given) < LEAST_SECRET:
            raise BadSettings(
                f"the session secret has {len(given)} characters; give {LEAST_SECRET} or more, and random ones",
                setting="session_secret",
            )
        self._secret = given or token or secrets.token_urlsafe(32)
        self._signed = URLSafeTimedSerializer(self._secret, salt="tidemill-session")
        self._messages = URLSafeTimedSerializer(self._secret, salt="tidemill-message")

    @property
    def has_token(self) -> bool:
        """Whether the site accepts a one-time token besides keys."""
        return self._token is not None

    async def opens(self, text: str) -> tuple[str, Identity] | None:
        """Check a key or the one-time token. Return the key id for the cookie, and the identity."""
        text = text.strip()
        if self.is_token(text):
            return "", Identity(_TOKEN, Role.SUPER_ADMIN, ALL_TENANTS)
        identity = await self._app.keys.aidentify(text)
        return None if identity is None else (text[3:11], identity)

    def is_token(self, text: str) -> bool:
        """Whether this is the one-time token of this run."""
        return self._token is not None and hmac.compare_digest(text.encode(), self._token.encode())

    async def of(self, request: Request) -> Session | None:
        """Return the session of a request if its key is still valid."""
        text = request.cookies.get(COOKIE)
        if not text:
            return None
        try:
            content = self._signed.loads(text, max_age=LASTS)
            key, nonce = str(content["key"]), str(content["nonce"])
        except (BadData, KeyError, TypeError):
            return None
        if key:
            identity = await self._app.keys.aidentity(key)
        else:
            identity = Identity(_TOKEN, Role.SUPER_ADMIN, ALL_TENANTS) if self._token is not None else None
        return None if identity is None else Session(identity, self.csrf(nonce))

    def csrf(self, about: str) -> str:
        """Return the CSRF token of a session. Pages of other sites cannot know it."""
        return hmac.new(self._secret.encode(), b"csrf " + about.encode(), hashlib.sha256).hexdigest()

    def begin(self, response: Response, request: Request, key: str) -> None:
        """Sign in."""
        text = self._signed.dumps({"key": key, "nonce": secrets.token_hex(8)})
        self._set(response, request, COOKIE, str(text), LASTS)

    def end(self, response: Response, request: Request) -> None:
        """Sign out in this browser."""
        response.delete_cookie(COOKIE, path=_path(request))

    # One-time messages after an action ---------------------------------------------------------------------------------

    def show_next(self, response: Response, request: Request, words: str, *, good: bool) -> None:
        """Show a message on the next page."""
        text = str(self._messages.dumps([good, words[:1000]]))
        self._set(response, request, MESSAGE, text, 60)

    def message(self, request: Request) -> tuple[bool, str] | None:
        """Return whether the message reports success, and the message itself."""
        try:
            message: Any = self._messages.loads(request.cookies.get(MESSAGE, ""), max_age=60)
            return bool(message[0]), str(message[1])
        except (BadData, IndexError, TypeError):
            return None

    def forget_message(self, response: Response, request: Request) -> None:
        """Delete the message after it was shown."""
        response.delete_cookie(MESSAGE, path=_path(request))

    # Appearance --------------------------------------------------------------------------------------------------------

    def theme(self, request: Request) -> str:
        """Return the theme: light, dark, or the system's."""
        theme = request.cookies.get(THEME, "")
        return theme if theme in THEMES else THEMES[0]

    def chosen_store(self, request: Request) -> str | None:
        """Return the store that the user chose last."""
        return unquote(request.cookies.get(STORE, "")) or None

    def remember_store(self, response: Response, request: Request, name: str) -> None:
        if self.chosen_store(request) != name:
            self._set(response, request, STORE, quote(name), 365 * 24 * 60 * 60)

    def set_theme(self, response: Response, request: Request, theme: str) -> None:
        self._set(response, request, THEME, theme, 365 * 24 * 60 * 60)

    def _set(self, response: Response, request: Request, name: str, value: str, lasts: int) -> None:
        response.set_cookie(
            name,
            value,
            max_age=lasts,
            path=_path(request),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )


def _path(request: Request) -> str:
    """Return the cookie path, which restricts cookies to this site on the host."""
    base = f"{request.scope.get('root_path', '')}{request.scope['tidemill.prefix']}"
    return base or "/"
