"""Page request: a ``WebRequest`` with a form, links and rendered pages."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.web.parsers import Fields
from tidemill.web.request import WebRequest
from tidemill.web.routes import Operation
from tidemill.web.sessions import THEMES, Session, UndoForm

if TYPE_CHECKING:
    from tidemill.dashboard.site import Site

P = ParamSpec("P")
R = TypeVar("R")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""Content security policy of all pages: nothing inline, nothing from other origins."""

LIVE = "x-tidemill-live"
"""Header that marks the script's refresh requests."""

SMALL = 1_000
"""Minimum size of a compressed response, in bytes."""


class PageRequest(WebRequest):
    """The request that a page's coroutine receives."""

    __slots__ = ("csrf", "form", "query", "site")

    def __init__(
        self, site: Site, operation: Operation, request: Request, session: Session, form: Fields
    ) -> None:
        self.site = site
        self.csrf = session.csrf
        self.form = form
        self.query = Fields(request.query_params.multi_items())
        store = self.query.get("store")
        service = site.service if not store else site.service.at(store)
        super().__init__(service, operation, request, session.identity, self.query.get("tenant"))

    # Permissions ---------------------------------------------------------------------------------------------------------

    def may(self, role: Role | str) -> bool:
        """Whether the user has this role and the dashboard is not read-only."""
        return not self.service.settings.read_only and self.identity.role.allows(Role(role))

    @property
    def refusal(self) -> str | None:
        """Why the user cannot change jobs; None for those who can."""
        if self.may(Role.OPERATOR):
            return None
        if self.service.settings.read_only:
            return "This server is read-only; nothing can be changed here."
        return f"The role {self.identity.role.value} only reads; changing jobs needs the role operator."

    @property
    def is_live(self) -> bool:
        """Whether this is a refresh request of the script."""
        return LIVE in self.headers

    @property
    def takes_gzip(self) -> bool:
        """Whether the client accepts gzip."""
        codings = self.headers.get("accept-encoding", "").split(",")
        return "gzip" in {coding.partition(";")[0].strip() for coding in codings}

    async def cached(
        self, about: tuple[Any, ...], ask: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run a slow query on a thread, or return its cached result.

        ``about`` is the cache key and must include everything that the result depends on.
        """
        make = partial(copy_context().run, partial(ask, *args, **kwargs))
        key = (self.service.store_name, self.service.is_pinned, *about)
        return await self.site.cached_stats.of(key, make, heard=self.service.changes.told, new=self.is_live)

    # Addresses -----------------------------------------------------------------------------------------------------------

    def url(self, path: str, /, **query: Any) -> str:
        """Return an address of this site, with the mount prefix and the selected tenant and store.

        The parameters are positional-only, because a query may contain any name, including ``path`` and ``self``.
        """
        parameters = {"tenant": self.query.get("tenant"), "store": self.chosen_store, **query}
        pairs = [
            (name, item)
            for name, value in parameters.items()
            for item in (value if isinstance(value, list | tuple) else [value])
            if item not in (None, "")
        ]
        return self.where(path) + (f"?{urlencode(pairs)}" if pairs else "")

    @property
    def chosen_store(self) -> str | None:
        """The store that the address of this page names, or in which its job was found."""
        return self.service.store_name if self.service.is_pinned else None

    def here(self, /, **changes: Any) -> str:
        """Return the address of this page with changed query parameters; None removes one."""
        parameters: dict[str, Any] = {}
        for name, value in self.query_here:
            parameters.setdefault(name, []).append(value)
        return self.url(self.seen_at, **{**parameters, **changes})

    @property
    def page_path(self) -> str:
        """Path of this page within the site."""
        base = self.where("")
        path: str = self.http.scope["path"]
        return path[len(base) :] if base and path.startswith(base) else path

    @property
    def seen_at(self) -> str:
        """Path at which this page can be viewed again.

        For an address that accepts only forms, it is the nearest page above it.
        """
        return (
            self.page_path if self.operation.method == "GET" else self.site.addresses.shown_at(self.page_path)
        )

    @property
    def query_here(self) -> list[tuple[str, str]]:
        """Query parameters that belong to ``seen_at``."""
        return [
            (name, value)
            for name, value in self.query.items()
            if name in ("tenant", "store") or self.seen_at == self.page_path
        ]

    @property
    def again(self) -> str:
        """Path and query of ``seen_at``, for redirects within the site."""
        return self.seen_at + (f"?{urlencode(self.query_here)}" if self.query_here else "")

    # Responses -----------------------------------------------------------------------------------------------------------

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a page."""
        message = None if self.is_live else self.site.sessions.message(self.http)
        text = self.site.views.render(template, self, {"message": message, **values})
        headers = {"content-security-policy": POLICY, "vary": "accept-encoding"}
        content = text.encode()
        if self.is_live and self.takes_gzip and len(content) > SMALL:
            # Compress only refresh responses. They contain no CSRF token that the compressed size could reveal.
            content = gzip.compress(content, 5)
            headers["content-encoding"] = "gzip"
        response = Response(content, status, headers, "text/html; charset=utf-8")
        if message is not None:
            self.site.sessions.forget_message(response, self.http)
        return response

    def back(
        self, path: str, words: str, *, good: bool = True, undo: UndoForm | None = None, **query: Any
    ) -> Response:
        """Redirect to a page after an action and show a message there once."""
        response = RedirectResponse(self.url(path, **query), 303)
        self.site.sessions.show_next(response, self.http, words, good=good, undo=undo)
        return response

    def back_to(
        self,
        address: str | None,
        words: str,
        *,
        good: bool = True,
        otherwise: str = "/",
        undo: UndoForm | None = None,
    ) -> Response:
        """Redirect to the address in the form field ``next`` if it is on this site, and show a message there once."""
        wanted = safe_next(address)
        if wanted is None:
            return self.back(otherwise, words, good=good, undo=undo)
        response = RedirectResponse(self.where("") + wanted, 303)
        self.site.sessions.show_next(response, self.http, words, good=good, undo=undo)
        return response

    @property
    def globals(self) -> Mapping[str, Any]:
        """Values that every template can use."""
        return {
            "request": self,
            "url": self.url,
            "here": self.here,
            "may": self.may,
            "refusal_to_change": self.refusal,
            "now": self.now(),
            "csrf": "" if self.is_live else self.csrf,
            "theme": self.site.sessions.theme(self.http),
            "themes": THEMES,
            "identity": self.identity,
            "chosen_tenant": self.query.get("tenant"),
            "chosen_store": self.chosen_store,
            "store_name": self.service.store_name,
            "store_page": "/" + self.seen_at.split("/")[1],
            "stores": self.inspection.addressable_stores() if self.service.has_several_stores else (),
            "missing_shards": self.inspection.missing_shards(),
            "all_tenants": self.identity.tenant == ALL_TENANTS,
            "read_only": self.service.settings.read_only,
        }


def safe_next(address: str | None) -> str | None:
    """Return a path of this site to redirect to; None for an external address.

    >>> safe_next("/jobs?status=failed"), safe_next("//evil.example"), safe_next("https://evil.example")
    ('/jobs?status=failed', None, None)
    """
    if address is None or not address.startswith("/") or address[1:2] in ("/", "\\") or len(address) > 2000:
        return None
    return None if any(ord(letter) < 33 or letter == "\\" for letter in address) else address
