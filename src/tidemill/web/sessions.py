"""Sign-in sessions of the dashboard, and its other cookies.

The cookie is a random text, and the store keeps its hash. Every request looks up the session and its key, so signing out
ends a session at once, and revoking a key ends its sessions within seconds.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from itsdangerous import BadData, URLSafeTimedSerializer
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response

from tidemill.configuration import value_of
from tidemill.domain.access import Identity, Role
from tidemill.domain.permissions import Access
from tidemill.domain.sessions import StoredSession
from tidemill.errors import BadSettings
from tidemill.web.guard import TOKEN_IDENTITY, TOKEN_NAME, OneTimeToken
from tidemill.web.settings import ApiSettings

if TYPE_CHECKING:
    from tidemill.app import App
    from tidemill.web.oidc import SignedIn

COOKIE = "tidemill_session"
MESSAGE = "tidemill_said"
PREFERENCE = "tidemill_"
COLUMNS = "job_columns"
"""The preference for the columns of the jobs page."""
THEME = "tidemill_theme"
STORE = "tidemill_store"
SECRET = "TIDEMILL_SESSION_SECRET"  # noqa: S105  (the name of a variable, not a secret)
"""Environment variable with the secret that signs messages and forms, if the settings have none."""

LEAST_SECRET = 16
"""Minimum number of characters of a secret. A guessed secret could be used to forge forms."""

THEMES = ("system", "light", "dark")
LONGEST_COOKIE = 200


LONGEST_UNDO = 500
"""Maximum number of characters of a text that a message carries in order to undo an action."""


class UndoForm(NamedTuple):
    """The form that takes an action back: its path on this site, and its fields."""

    path: str
    fields: Mapping[str, str]


class Session(NamedTuple):
    """One sign-in: its identity, and the CSRF token of its forms."""

    identity: Identity
    csrf: str


def session_fields(signed_in: SignedIn, issuer: str, state: str) -> dict[str, str | None]:
    """Return the fields of the stored session. The state opens one session only, so a replayed answer opens none."""
    identity = signed_in.identity
    access = Access(identity.grants, identity.roles, identity.environment)
    grant = {"role": identity.role.value, "tenant": identity.tenant, **access.data()}
    return {
        "grant_json": to_json(grant).decode(),
        "issuer": issuer,
        "subject": signed_in.subject,
        "provider_session": signed_in.provider_session,
        "single_use": state,
    }


def identity_of_session(stored: StoredSession) -> Identity | None:
    """Return the identity of a session of single sign-on."""
    if stored.grant_json is None:
        return None
    data = from_json(stored.grant_json)
    access = Access.read(data)
    return Identity(
        stored.who,
        Role(data["role"]),
        data["tenant"],
        grants=access.grants,
        roles=access.roles,
        environment=access.environment,
    )


class Sessions:
    """Creates and reads the cookies of one site."""

    def __init__(self, app: App, settings: ApiSettings, token: OneTimeToken | None) -> None:
        self._app = app
        self._token = token
        self._lifetime = settings.session_lifetime
        self._issuer = None if settings.oidc is None else settings.oidc.issuer
        self.api = app.sessions
        given = settings.session_secret or value_of(SECRET)
        if given and len(given) < LEAST_SECRET:
            raise BadSettings(
                f"the session secret has {len(given)} characters; give {LEAST_SECRET} or more, and random ones",
                setting="session_secret",
            )
        self.secret = given or secrets.token_urlsafe(32)
        self._messages = URLSafeTimedSerializer(self.secret, salt="tidemill-message")

    async def has_token(self) -> bool:
        """Whether the site still accepts its one-time token."""
        return self._token is not None and await self._token.is_open()

    async def open_by_key(self, text: str) -> str | None:
        """Begin a session by a key or the one-time token. Return its cookie, or None if the text is not valid."""
        text = text.strip()
        if (cookie := await self.open_by_token(text)) is not None:
            return cookie
        identity = await self._app.keys.aidentify(text)
        return None if identity is None else await self.begin(identity.who, key_id=text[3:11])

    async def open_by_token(self, text: str) -> str | None:
        """Begin a session by the one-time token. Return its cookie, or None if the token is no longer accepted."""
        if self._token is None or not await self._token.opens(text):
            return None
        self._token.spend()
        return await self.begin(TOKEN_NAME, single_use=text)

    async def begin(self, who: str, **fields: str | None) -> str | None:
        """Store a session and return its cookie, or None if the single-use code opened one before."""
        cookie: str | None = await self.api.abegin(who, self._lifetime, **fields)
        return cookie

    async def begin_signed_in(self, signed_in: SignedIn, state: str) -> str | None:
        """Begin the session of a user of single sign-on. Return None if the provider's answer was used before."""
        assert self._issuer is not None
        return await self.begin(signed_in.identity.who, **session_fields(signed_in, self._issuer, state))

    async def of(self, request: Request) -> Session | None:
        """Return the session of a request if it has not ended and its key is still valid."""
        cookie = request.cookies.get(COOKIE)
        if not cookie or len(cookie) > LONGEST_COOKIE:
            return None
        stored = await self.api.aget(cookie)
        identity = None if stored is None else await self._identity(stored)
        if identity is None:
            return None
        return Session(
            identity, hmac.new(cookie.encode("utf-8", "surrogatepass"), b"csrf", hashlib.sha256).hexdigest()
        )

    async def _identity(self, stored: StoredSession) -> Identity | None:
        if stored.issuer is not None:
            # A server without this provider, or with another one, accepts none of its sessions.
            return identity_of_session(stored) if stored.issuer == self._issuer else None
        if stored.key_id is not None:
            identity: Identity | None = await self._app.keys.aidentity(stored.key_id)
            return identity
        # The session of the token ends with the first key, as the token does.
        if self._token is None or await self._app.keys.aany():
            return None
        return TOKEN_IDENTITY

    def csrf(self, about: str) -> str:
        """Return the CSRF token of a user whom the application signs in. Pages of other sites cannot know it."""
        return hmac.new(self.secret.encode(), b"csrf " + about.encode(), hashlib.sha256).hexdigest()

    def keep(self, response: Response, request: Request, cookie: str) -> None:
        """Give the cookie of a new session to the browser."""
        self._set(response, request, COOKIE, cookie, int(self._lifetime.total_seconds()))

    async def is_of_provider(self, request: Request) -> bool:
        """Whether the session of a request began at the provider of single sign-on."""
        cookie = request.cookies.get(COOKIE)
        stored = await self.api.aget(cookie) if cookie else None
        return stored is not None and stored.issuer is not None

    async def end(self, response: Response, request: Request) -> None:
        """Sign out: end the session and delete its cookie."""
        if cookie := request.cookies.get(COOKIE):
            await self.api.asign_out(cookie)
        response.delete_cookie(COOKIE, path=_path(request))

    # One-time messages after an action ---------------------------------------------------------------------------------

    def show_next(
        self, response: Response, request: Request, words: str, *, good: bool, undo: UndoForm | None = None
    ) -> None:
        """Show a message on the next page; ``undo`` is the form that takes the action back."""
        text = str(self._messages.dumps([good, words[:1000], undo and [undo.path, dict(undo.fields)]]))
        self._set(response, request, MESSAGE, text, 60)

    def message(self, request: Request) -> tuple[bool, str, UndoForm | None] | None:
        """Return whether the message reports success, the message itself, and how to undo the action."""
        try:
            message: Any = self._messages.loads(request.cookies.get(MESSAGE, ""), max_age=60)
            return bool(message[0]), str(message[1]), UndoForm(*message[2]) if message[2] else None
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

    def preference(self, request: Request, name: str) -> str:
        """Return what the user chose for a page in this browser, or nothing."""
        return unquote(request.cookies.get(f"{PREFERENCE}{name}", ""))

    def prefer(self, response: Response, request: Request, name: str, value: str) -> None:
        """Keep what the user chose for a page in this browser."""
        self._set(response, request, f"{PREFERENCE}{name}", quote(value), 365 * 24 * 60 * 60)

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
