"""Who sits before the browser: a signed cookie that names a key, and never holds one.

The cookie is looked at on every request, and so is the key it names: one that was revoked ends its sessions within seconds. It
is signed with a secret of the server's; without one in the settings each start makes its own, and everybody signs in again.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from itsdangerous import BadData, URLSafeTimedSerializer
from starlette.requests import Request
from starlette.responses import Response

from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.errors import BadSettings

if TYPE_CHECKING:
    from tidemill.app import App

COOKIE = "tidemill_session"
SAID = "tidemill_said"
THEME = "tidemill_theme"
LASTS = 12 * 60 * 60
"""Seconds after which one signs in again."""

SECRET = "TIDEMILL_SESSION_SECRET"  # noqa: S105  (the name of a variable)
"""The variable of the environment that signs sessions, where the settings do not."""

LEAST_SECRET = 16
"""Characters of a secret; a shorter one could be guessed, and with it every session be made."""

THEMES = ("system", "light", "dark")
_TOKEN = "one-time token"  # noqa: S105  (its name, for the audit)


class Session(NamedTuple):
    """One sign-in: who it is, and what its forms carry."""

    identity: Identity
    csrf: str


class Sessions:
    """Makes and reads the cookies of one site."""

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
        self._words = URLSafeTimedSerializer(self._secret, salt="tidemill-said")

    async def opens(self, text: str) -> tuple[str, Identity] | None:
        """What a key or the one-time token opens: the name the cookie will hold, and who it is."""
        text = text.strip()
        if self.is_token(text):
            return "", Identity(_TOKEN, Role.SUPER_ADMIN, ALL_TENANTS)
        found = await self._app.keys.aidentify(text)
        return None if found is None else (text[3:11], found)

    def is_token(self, text: str) -> bool:
        """Whether this is the token that was given out for this run."""
        return self._token is not None and hmac.compare_digest(text.encode(), self._token.encode())

    async def of(self, request: Request) -> Session | None:
        """The session a browser shows, if its key still lives."""
        text = request.cookies.get(COOKIE)
        if not text:
            return None
        try:
            said = self._signed.loads(text, max_age=LASTS)
            key, nonce = str(said["key"]), str(said["nonce"])
        except (BadData, KeyError, TypeError):
            return None
        if key:
            identity = await self._app.keys.aidentity(key)
        else:
            identity = Identity(_TOKEN, Role.SUPER_ADMIN, ALL_TENANTS) if self._token is not None else None
        return None if identity is None else Session(identity, self.csrf(nonce))

    def csrf(self, about: str) -> str:
        """What a form must carry to be believed: nobody else's page can know it."""
        return hmac.new(self._secret.encode(), b"csrf " + about.encode(), hashlib.sha256).hexdigest()

    def begin(self, response: Response, request: Request, key: str) -> None:
        """Sign in."""
        text = self._signed.dumps({"key": key, "nonce": secrets.token_hex(8)})
        self._set(response, request, COOKIE, str(text), LASTS)

    def end(self, response: Response, request: Request) -> None:
        """Sign out of this browser."""
        response.delete_cookie(COOKIE, path=_path(request))

    # What is said once, after an act -----------------------------------------------------------------------------------

    def say(self, response: Response, request: Request, words: str, *, good: bool) -> None:
        """Have these words shown on the next page."""
        text = str(self._words.dumps([good, words[:1000]]))
        self._set(response, request, SAID, text, 60)

    def said(self, request: Request) -> tuple[bool, str] | None:
        """The words to show, and whether they tell of something good."""
        try:
            found: Any = self._words.loads(request.cookies.get(SAID, ""), max_age=60)
            return bool(found[0]), str(found[1])
        except (BadData, IndexError, TypeError):
            return None

    def forget_said(self, response: Response, request: Request) -> None:
        """They were shown."""
        response.delete_cookie(SAID, path=_path(request))

    # Looks -------------------------------------------------------------------------------------------------------------

    def theme(self, request: Request) -> str:
        """Light, dark, or as the system has it."""
        found = request.cookies.get(THEME, "")
        return found if found in THEMES else THEMES[0]

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
    """Cookies are for this site only, not for what else is served on the host."""
    base = f"{request.scope.get('root_path', '')}{request.scope['tidemill.prefix']}"
    return base or "/"
