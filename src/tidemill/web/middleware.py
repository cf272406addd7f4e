"""Outermost middleware: request limits, response headers, error responses."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from itertools import chain

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemill.web.mount_paths import located
from tidemill.web.problems import NO_NUL, Problem, problem_of
from tidemill.web.settings import ApiSettings

_CORRELATION = re.compile(r"[A-Za-z0-9._:/+=@-]{1,64}")

HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; "
    b"form-action 'none'",
}
"""Headers of every response that does not set them itself."""


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
        # Of a repeated header, the first value is kept.
        headers = scope["tidemill.headers"] = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in reversed([*scope["headers"]])
        }
        given = headers.get("x-correlation-id", "")
        is_valid = _CORRELATION.fullmatch(given) is not None
        correlation = given if is_valid else uuid.uuid4().hex
        scope["tidemill.correlation"] = correlation
        scope["tidemill.correlated"] = is_valid
        scope["tidemill.bad_correlation"] = bool(given) and not is_valid
        scope["tidemill.prefix"] = self._prefix
        scope["path"], scope["root_path"] = located(
            scope["path"], scope.get("raw_path"), scope.get("root_path", ""), self._prefix
        )
        begun = False

        async def outward(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                own = [*message.get("headers", ()), (b"x-correlation-id", correlation.encode())]
                message = {**message, "headers": [*own, *_missing(own)]}
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
        if sum(map(len, chain.from_iterable(scope["headers"]))) > self._settings.max_headers:
            raise Problem(431, None, f"the headers are larger than {self._settings.max_headers:,} bytes")
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            raise Problem(422, "bad_text", NO_NUL)
        if self._hosts:
            host = re.sub(r":\d+$", "", scope["tidemill.headers"].get("host", "").lower())
            if host not in self._hosts:
                # This also prevents DNS rebinding: a page in a browser cannot reach this server by a name of its own.
                raise Problem(421, None, "this server does not accept that host name")


def _missing(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    """Return the default headers that a response lacks."""
    own = dict(headers)
    if HEADERS.keys().isdisjoint(own):
        return HEADERS.items()
    return [pair for pair in HEADERS.items() if pair[0] not in own]
