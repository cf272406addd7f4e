"""Who may call what, judged in one place: the key, the role, the tenant and the rate. Nothing is open unless it says so."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.requests import Request

from tidemill.clock import Clock
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.rest.problems import Problem
from tidemill.rest.settings import ApiSettings

if TYPE_CHECKING:
    from tidemill.app import App
    from tidemill.rest.routes import Declared

Auth = Callable[[Request], Awaitable[Identity | None]]
"""Who a request comes from; None for nobody we know. May raise ``Problem``."""

MOST_BUCKETS = 10_000
LONGEST_KEY = 200
KNOWN = 1_000
"""Callers who were let in before, whom the wrong keys of others at the same address do not shut out."""

ANONYMOUS = "anonymous"
"""What callers without a key are called. That they are let in is never told from this name: an ``auth`` of yours may give it, too."""


class Keys:
    """Keys in ``Authorization: Bearer``, as the app's store knows them; and a token that was given out for one run."""

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
    """The text after ``Bearer``; None where there is no such header. Keys anywhere else are not looked for."""
    given = request.headers.getlist("authorization")
    if not given:
        return None
    scheme, _, text = given[0].partition(" ")
    if len(given) > 1 or scheme.lower() != "bearer" or not 0 < len(text.strip()) <= LONGEST_KEY:
        return ""
    return text.strip()


class Buckets:
    """Token buckets, one for each caller; the one that was not used for the longest time makes room for a new one."""

    def __init__(self, rate: float, burst: int, clock: Clock) -> None:
        self._rate, self._burst, self._clock = rate, float(burst), clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> float:
        """Take one; 0, or the seconds until there is one to take."""
        now = self._clock.monotonic()
        left, at = self._buckets.pop(who, (self._burst, now))
        left = min(self._burst, left + max(now - at, 0.0) * self._rate)
        taken = left >= 1.0
        self._buckets[who] = (left - 1.0 if taken else left, now)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return 0.0 if taken else (1.0 - left) / self._rate

    def wait(self, who: str) -> float:
        """Seconds until there is one to take; nothing is taken."""
        left, at = self._buckets.get(who, (self._burst, 0.0))
        left = min(self._burst, left + max(self._clock.monotonic() - at, 0.0) * self._rate)
        return 0.0 if left >= 1.0 else (1.0 - left) / self._rate


def address_of(request: Request) -> str:
    """Where a caller sits; in IPv6 the whole network that one subscriber has."""
    host = request.client.host if request.client else "unknown"
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))


class Logins:
    """Wrong keys, counted for each address. Who has shown too many is not looked at, unless this caller was let in before."""

    def __init__(self, settings: ApiSettings, clock: Clock) -> None:
        self._buckets = Buckets(settings.login_rate, settings.login_burst, clock)
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def check(self, request: Request) -> None:
        """Refuse who has shown too many wrong keys."""
        wait = self._buckets.wait(address_of(request))
        if wait and self._digest(request) not in self._known:
            raise Problem(
                429,
                "too_many_wrong_keys",
                "too many wrong keys came from your address",
                headers={"retry-after": str(math.ceil(wait))},
            )

    def failed(self, request: Request) -> None:
        """It opened nothing."""
        self._known.pop(self._digest(request), None)
        self._buckets.take(address_of(request))

    def passed(self, request: Request) -> None:
        """It opened the door."""
        digest = self._digest(request)
        self._known[digest] = None
        self._known.move_to_end(digest)
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)

    def _digest(self, request: Request) -> bytes:
        return hashlib.sha256("\0".join(request.headers.getlist("authorization")).encode()).digest()


class Guard:
    """Stands before every route."""

    def __init__(self, app: App, settings: ApiSettings, auth: Auth) -> None:
        self._auth = auth
        self._settings = settings
        self.nobody = Identity(
            ANONYMOUS, Role.VIEWER, app._client.tenant
        )  #: who calls without a key, where he may
        self._buckets = Buckets(settings.create_rate, settings.create_burst, app.clock)
        self.logins = Logins(settings, app.clock)

    async def admit(self, route: Declared, request: Request) -> Identity:
        """Who calls, if he may; else 401, 403 or 429."""
        if route.role is None:
            return self.nobody
        identity = await self._identity(route, request)
        if route.mutates and self._settings.read_only:
            raise Problem(403, "read_only", "this server is for looking only")
        if identity is self.nobody:
            self._limit(f"address {address_of(request)}")
            return identity
        if not identity.role.allows(route.role):
            raise Problem(
                403, None, f"this needs the role {route.role.value}; yours is {identity.role.value}"
            )
        if route.everywhere and identity.tenant != ALL_TENANTS:
            raise Problem(403, "wrong_tenant", "this concerns all tenants, and your key is for one")
        if route.creates:
            self._limit(identity.who)
        return identity

    async def _identity(self, route: Declared, request: Request) -> Identity:
        shows = "authorization" in request.headers
        if shows:
            self.logins.check(request)
        found = await self._auth(request)
        if found is not None:
            if shows:
                self.logins.passed(request)
            return found
        if shows:
            self.logins.failed(request)
        if (
            route.creates
            and self._settings.allow_anonymous_create
            and not shows  # who shows a key that opens nothing is told so
        ):
            return self.nobody
        raise Problem(
            401,
            None,
            "give a living key as Authorization: Bearer tm_…",
            headers={"www-authenticate": 'Bearer realm="tidemill"'},
        )

    def _limit(self, who: str) -> None:
        wait = self._buckets.take(who)
        if wait:
            raise Problem(
                429,
                None,
                f"at most {self._settings.create_rate:g} jobs a second may be created",
                headers={"retry-after": str(math.ceil(wait))},
            )
