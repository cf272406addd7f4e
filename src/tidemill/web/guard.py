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

from tidemill.clock import Clock
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.permissions import ACTS, NOTHING, AccessVerdict, ActTarget, decide
from tidemill.web.problems import Problem
from tidemill.web.routes import Operation
from tidemill.web.settings import ApiSettings

if TYPE_CHECKING:
    from tidemill.app import App

AccessTokens = Callable[[str], Awaitable[tuple[Identity | None, str | None]]]
"""Returns the identity of an access token, or in words why it is refused."""

REASON = "tidemill.refused"
"""Name in the scope of a request for the reason why its credentials are refused."""

Auth = Callable[[Request], Awaitable[Identity | None]]
"""Identifies the caller of a request; returns None if unknown. May raise ``Problem``."""

MOST_BUCKETS = 10_000
LONGEST_KEY = 16 * 1024
"""Maximum length of a bearer text. Access tokens with many groups are long."""

ANONYMOUS = "anonymous"
"""Name of callers without a key. Never used to authorise them, because a custom ``auth`` may return the same name."""


REFUSAL_RATE = 1 / 60
"""Audit entries per second about refusals of one caller and act, so that a caller cannot fill the log."""

_LATER = frozenset({"job", "list", "later"})


class Refusal(Problem):
    """A caller with an identity lacks a permission."""

    def __init__(self, identity: Identity, act: str, verdict: AccessVerdict) -> None:
        super().__init__(403, verdict.code, verdict.reason, act=act)
        self.identity, self.act = identity, act


TOKEN_NAME = "one-time token"  # noqa: S105  (a name for the audit log, not a secret)
TOKEN_IDENTITY = Identity(TOKEN_NAME, Role.SUPER_ADMIN, ALL_TENANTS)


class OneTimeToken:
    """The token that opens a server without keys. It signs in once, and ends with the sign-in or the first key."""

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        self._token = token.encode()
        self._is_spent = False

    async def is_open(self) -> bool:
        """Whether the token is still accepted."""
        return not self._is_spent and not await self._app.keys.aany()

    async def opens(self, text: str) -> bool:
        """Whether this is the token, and it is still accepted."""
        is_token = hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self._token)
        return is_token and await self.is_open()

    def spend(self) -> None:
        """Accept the token no more: it was used to sign in."""
        self._is_spent = True


class KeyCache:
    """Authenticates ``Authorization: Bearer`` by API key, access token, or the one-time token of this run."""

    def __init__(
        self, app: App, token: OneTimeToken | None = None, access_tokens: AccessTokens | None = None
    ) -> None:
        self._app = app
        self._token = token
        self._access_tokens = access_tokens

    async def __call__(self, request: Request) -> Identity | None:
        text = bearer(request)
        if text is None:
            return None
        if self._access_tokens is not None and not text.startswith("tm_") and text.count(".") == 2:
            identity, request.scope[REASON] = await self._access_tokens(text)
            return identity
        if self._token is not None and await self._token.opens(text):
            return TOKEN_IDENTITY
        return await self._app.keys.aidentify(text)


def bearer(request: Request) -> str | None:
    """Return the text after ``Bearer``, or None if there is no such header. Keys are accepted nowhere else."""
    headers: dict[str, str] = request.scope["tidemill.headers"]
    given = headers.get("authorization")
    if given is None:
        return None
    scheme, _, text = given.partition(" ")
    text = text.strip()
    if scheme.lower() != "bearer" or not 0 < len(text) <= LONGEST_KEY:
        return ""
    # Two keys are ambiguous, so neither is accepted.
    is_repeated = len(headers) < len(request.scope["headers"])
    return "" if is_repeated and len(request.headers.getlist("authorization")) > 1 else text


HOOK_RATE, HOOK_BURST = 50.0, 200
"""Deliveries of each webhook per second, and at once."""


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
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return host if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


class Logins:
    """Counts invalid keys per client address.

    Valid keys are not counted, so another client behind the same proxy cannot lock a user out.
    """

    def __init__(self, settings: ApiSettings, clock: Clock) -> None:
        self._buckets = Buckets(settings.login_rate, settings.login_burst, clock)
        self._begun = Buckets(settings.login_rate, settings.login_burst, clock)

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

    def begin(self, request: Request) -> None:
        """Count a sign-in that begins at the provider; raise 429 if there were too many from this address."""
        wait = self._begun.take(address_of(request))
        if wait:
            raise Problem(
                429,
                "too_many_sign_ins",
                "too many sign-ins from your address",
                headers={"retry-after": str(math.ceil(wait))},
            )


class Guard:
    """Checks every request before its route runs."""

    def __init__(
        self, settings: ApiSettings, auth: Auth, clock: Clock, tenant: str, environment: str | None = None
    ) -> None:
        self._auth = auth
        self._settings = settings
        self.environment = environment
        #: Identity of callers without a key.
        self.anonymous = Identity(ANONYMOUS, Role.VIEWER, tenant)
        self._buckets = Buckets(settings.create_rate, settings.create_burst, clock)
        self._hooks = Buckets(HOOK_RATE, HOOK_BURST, clock)
        self._refusals = Buckets(REFUSAL_RATE, 1, clock)
        self.logins = Logins(settings, clock)

    async def admit(self, operation: Operation, request: Request) -> Identity:
        """Return the caller's identity, or raise 401, 403 or 429."""
        if operation.role is None:
            return self.anonymous
        identity = await self._auth(request)
        if identity is None:
            identity = self._without_key(operation, request)
        identity = self.authorize(operation, identity, request)
        if identity is self.anonymous:
            self._limit(f"address {address_of(request)}")
        elif operation.creates:
            self._limit(identity.who)
        return identity

    def authorize(self, operation: Operation, identity: Identity, request: Request) -> Identity:
        """Return the identity in the requested tenant, or raise 403 unless this caller may use the operation."""
        if self._settings.read_only and operation.mutates:
            raise Problem(403, "read_only", "this server is read-only")
        if operation.role is None or identity is self.anonymous:
            return identity
        if identity.roles and (tenant := request.query_params.get("tenant")):
            identity = identity.within(tenant)
        rule = ACTS[operation.act.act]
        # Most identities are restricted by their role alone, and most acts need nothing else.
        plain = not (identity.grants or identity.environment or rule.everywhere or rule.second)
        if not plain or not identity.role.allows(rule.role):
            self.check(identity, operation.act.act, self._target(operation, identity, request))
        return identity

    def check(self, identity: Identity, act: str, target: ActTarget | None = None) -> None:
        """Raise 403 with the reason unless this caller may do the act."""
        verdict = decide(identity, act, target, self.environment)
        if not verdict.allowed:
            raise Refusal(identity, act, verdict)

    def allows(self, identity: Identity, act: str, target: ActTarget | None = None) -> bool:
        """Whether this caller may do the act."""
        return decide(identity, act, target, self.environment).allowed

    def hook_wait(self, name: str) -> float:
        """Count a delivery of a webhook. Return 0, or the seconds after which the next one is accepted."""
        return self._hooks.take(name)

    def is_noted(self, who: str, act: str) -> bool:
        """Whether to write this refusal to the audit log: the first of each caller and act in a minute."""
        return self._refusals.take(f"{act} {who}") == 0.0

    def _target(self, operation: Operation, identity: Identity, request: Request) -> ActTarget | None:
        """Return the object of the act; None if the handler finds it later."""
        by = operation.act.by
        if not identity.grants or by in _LATER:
            return None
        if not by:
            return NOTHING
        # A path has one parameter that names its object.
        (name,) = request.path_params.values()
        return ActTarget(**{by: name})

    def _without_key(self, operation: Operation, request: Request) -> Identity:
        """Return the anonymous identity if the operation is open to it, or raise 401."""
        has_key = "authorization" in request.scope["tidemill.headers"]
        if has_key:
            self.logins.failed(request)
        # An invalid key is an error, not an anonymous request.
        elif operation.creates and self._settings.allow_anonymous_create:
            return self.anonymous
        raise Problem(
            401,
            None,
            request.scope.get(REASON)
            or "missing, unknown, expired or revoked API key; send Authorization: Bearer tm_…",
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
