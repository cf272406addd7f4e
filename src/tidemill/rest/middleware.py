"""Outermost middleware: request limits, response headers, error responses."""

from __future__ import annotations

import re
import uuid

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.rest.mount_paths import locate
from tidemill.rest.problems import NO_NUL, Problem, problem_of
from tidemill.rest.settings import ApiSettings

_CORRELATION = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,64}")

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
POLICY = (
    b"content-security-policy",
    b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
)


class Middleware:
    """ASGI middleware around the whole API."""

    def __init__(self, app: ASGIApp, settings: ApiSettings, prefix: str) -> None:
        self._app = app
        self._settings = settings
        self._prefix = prefix
        self._hosts = frozenset(name.lower() for name in settings.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Copy it, because an outer application may read its scope afterwards.
        scope = dict(scope)
        given = next((value for name, value in scope["headers"] if name == b"x-correlation-id"), b"")
        known = _CORRELATION.fullmatch(given) is not None
        correlation = given.decode() if known else uuid.uuid4().hex
        scope["tidemill.correlation"] = correlation
        scope["tidemill.correlated"] = known
        scope["tidemill.bad_correlation"] = bool(given) and not known
        scope["tidemill.prefix"] = self._prefix
        locate(scope, self._prefix)
        begun = False

        async def outward(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = list(message.get("headers", ()))
                names = {name for name, _ in headers}
                headers.append((b"x-correlation-id", correlation.encode()))
                headers += [pair for pair in (*HEADERS, POLICY) if pair[0] not in names]
                message = {**message, "headers": headers}
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, outward)
        except Exception as error:
            problem = problem_of(error, correlation)
            if begun:
                raise
            await problem.response(correlation)(scope, receive, outward)

    def _check(self, scope: Scope) -> None:
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > self._settings.max_url:
            raise Problem(414, None, f"the address is longer than {self._settings.max_url:,} bytes")
        headers = scope["headers"]
        if sum(len(name) + len(value) for name, value in headers) > self._settings.max_headers:
            raise Problem(431, None, f"the headers are larger than {self._settings.max_headers:,} bytes")
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            raise Problem(422, "bad_text", NO_NUL)
        if self._hosts:
            host = next((value for name, value in headers if name == b"host"), b"").decode("latin-1").lower()
            bare = re.sub(r":\d+$", "", host)
            if bare not in self._hosts:
                # This also prevents DNS rebinding: a page in a browser cannot reach this server by a name of its own.
                raise Problem(421, None, "this server does not accept that host name")
