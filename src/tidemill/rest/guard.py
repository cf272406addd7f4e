"""Authentication, authorisation and rate limits of all routes.

A route is closed unless its declaration opens it.
"""

from __future__ import annotations

import hmac
import ipaddress
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request

from tidemill.client.core import client_of
from tidemill.clock import Clock
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.rest.problems import Problem
from tidemill.rest.settings import ApiSettings

if TYPE_CHECKING:
    from tidemill.app import App
    from tidemill.rest.routes import Guarded

Auth = Callable[[Request], Awaitable[Identity | None]]
"""Identifies the caller of a request; returns None if unknown. May raise ``Problem``."""

MOST_BUCKETS = 10_000
LONGEST_KEY = 200

ANONYMOUS = "anonymous"
"""Name of callers without a key. Never used to authorise them, because a custom ``auth`` may return the same name."""


class KeyCache:
    """Authenticates ``Authorization: Bearer`` by API key, or by the one-time token of this run."""

    def __init__(self, app: App, token: str | None = None) -> None:
        self._app = app
        self._token = None if token is None else token.encode()

    async def __call__(self, request: Request) -> Identity | None:
        text = bearer(request)
        if text is None:
            return None
        if self._token is not None and hmac.compare_digest(text.encode(), self._token):
            return Identity("one-time token", Role.SUPER_ADMIN, ALL_TENANTS)
        return await self._app.keys.aidentify(text)


def bearer(request: Request) -> str | None:
    """Return the text after ``Bearer``, or None if there is no such header. Keys are accepted nowhere else."""
    given = request.headers.getlist("authorization")
    if not given:
        return None
    scheme, _, text = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not 0 < len(text.strip()) <= LONGEST_KEY:
        return ""
    return text.strip()


class Buckets:
    """Token buckets, one per caller. A new one replaces the least recently used if there are too many."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> float:
        """Take one token. Return 0, or the seconds until one is available."""
        now = self._clock.monotonic()
        left, at = self._buckets.pop(who, (self._burst, now))
        left = min(self._burst, left + max(now - at, 0.0) * self._rate)
        taken = left >= 1.0
        self._buckets[who] = (left - 1.0 if taken else left, now)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if taken else (1.0 - left) / self._rate


def address_of(request: Request) -> str:
    """Return the client address; for IPv6 the /64 network, which usually belongs to one subscriber."""
    host = request.client.host if request.client else "unknown"
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))


class Logins:
    """Counts invalid keys per client address.

    Valid keys are not counted, so another client behind the same proxy cannot lock a user out.
    """

    def __init__(self, settings: ApiSettings, clock: Clock) -> None:
        self._buckets = Buckets(settings.login_rate, settings.login_burst, clock)

    def failed(self, request: Request) -> None:
        """Count an invalid key; raise 429 if there were too many from this address."""
        wait = self._buckets.take(address_of(request))
        if wait:
            raise Problem(
                429,
                "too_many_wrong_keys",
                "too many requests with invalid keys from your address",
                headers={"retry-after": str(math.ceil(wait))},
            )


class Guard:
    """Checks every request before its route runs."""

    def __init__(self, app: App, settings: ApiSettings, auth: Auth) -> None:
        self._auth = auth
        self._settings = settings
        self.nobody = Identity(
            ANONYMOUS, Role.VIEWER, client_of(app).tenant
        )  #: identity of callers without a key
        self._buckets = Buckets(settings.create_rate, settings.create_burst, app.clock)
        self.logins = Logins(settings, app.clock)

    async def admit(self, route: Guarded, request: Request) -> Identity:
        """Return the caller's identity, or raise 401, 403 or 429."""
        if route.role is None:
            return self.nobody
        identity = await self._identity(route, request)
        if route.mutates and self._settings.read_only:
            raise Problem(403, "read_only", "this server is read-only")
        if identity is self.nobody:
            self._limit(f"address {address_of(request)}")
            return identity
        if not identity.role.allows(route.role):
            raise Problem(
                403, None, f"this requires the role {route.role.value}; yours is {identity.role.value}"
            )
        if route.everywhere and identity.tenant != ALL_TENANTS:
            raise Problem(403, "wrong_tenant", "this requires a key of all tenants; your key is for one")
        if route.creates:
            self._limit(identity.who)
        return identity

    async def _identity(self, route: Guarded, request: Request) -> Identity:
        shows = "authorization" in request.headers
        found = await self._auth(request)
        if found is not None:
            return found
        if shows:
            self.logins.failed(request)
        if (
            route.creates
            and self._settings.allow_anonymous_create
            # An invalid key is an error, not an anonymous request.
            and not shows
        ):
            return self.nobody
        raise Problem(
            401,
            None,
            "missing, unknown, expired or revoked API key; send Authorization: Bearer tm_…",
            headers={"www-authenticate": 'Bearer realm="tidemill"'},
        )

    def _limit(self, who: str) -> None:
        wait = self._buckets.take(who)
        if wait:
            raise Problem(
                429,
                None,
                f"job creation is limited to {self._settings.create_rate:g} per second",
                headers={"retry-after": str(math.ceil(wait))},
            )
