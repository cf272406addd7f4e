"""One request to a page, admitted: a ``Call`` that also reads forms and answers with pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from tidemill.dashboard.sessions import THEMES
from tidemill.dashboard.typed import read_number
from tidemill.domain.access import Identity, Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.rest.call import Call
from tidemill.rest.problems import NO_NUL, Problem

if TYPE_CHECKING:
    from tidemill.dashboard.pages import Page
    from tidemill.dashboard.site import Site

P = ParamSpec("P")
R = TypeVar("R")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""What a browser may load and do on our pages. Nothing inline, nothing from elsewhere."""

LIVE = "x-tidemill-live"
"""The header of the script's own requests."""

MOST_FIELDS = 2_000


class Fields:
    """Texts by name, of a query or a form; empty ones count as not given."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = [(name, value.strip()) for name, value in pairs if value.strip()]

    @property
    def tenant(self) -> str | None:
        return self.get("tenant")

    def get(self, name: str) -> str | None:
        """The first text of this name."""
        return next((value for each, value in self._pairs if each == name), None)

    def all(self, name: str) -> list[str]:
        """Every text of this name."""
        return [value for each, value in self._pairs if each == name]

    def items(self) -> list[tuple[str, str]]:
        """All of them, in order."""
        return list(self._pairs)

    def whole(self, name: str, otherwise: int, *, least: int = 0, most: int = 1_000_000) -> int:
        """A whole number; what is none, or out of bounds, is refused in words."""
        text = self.get(name)
        if text is None:
            return otherwise
        try:
            return read_number(text, least, most)
        except ValueError as error:
            raise Problem(422, None, f"{name} is {text[:40]!r}; {error}") from None


class Visit(Call):
    """What a page's coroutine is given."""

    __slots__ = ("asked", "csrf", "form", "page_", "site")

    def __init__(
        self, site: Site, page: Page, request: Request, identity: Identity, csrf: str, form: Fields
    ) -> None:
        self.site = site
        self.page_ = page
        self.csrf = csrf
        self.form = form
        self.asked = Fields(request.query_params.multi_items())
        super().__init__(site.service, page, request, identity, self.asked, None)

    # What may be done ----------------------------------------------------------------------------------------------------

    def may(self, role: Role | str) -> bool:
        """Whether to show what only this role can do."""
        return not self.service.settings.read_only and self.identity.role.allows(Role(role))

    @property
    def is_live(self) -> bool:
        """Whether the script asks, to see what has moved."""
        return LIVE in self.request.headers

    async def figures(
        self, about: tuple[Any, ...], ask: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """What blocks and may take long, or what it found a moment ago; ``about`` says all that it depends on."""
        make = partial(copy_context().run, partial(ask, *args, **kwargs))
        return await self.site.figures.of(about, make, heard=self.service.changes.told, new=self.is_live)

    # Addresses -----------------------------------------------------------------------------------------------------------

    def url(self, path: str, /, **query: Any) -> str:
        """An address of this site: right wherever it is mounted, and for the tenant that was chosen.

        Anybody may put any word into a query, ``path`` and ``self`` as well.
        """
        said = {"tenant": self.asked.get("tenant"), **query}
        pairs = [
            (name, each)
            for name, value in said.items()
            for each in (value if isinstance(value, list | tuple) else [value])
            if each not in (None, "")
        ]
        return self.where(path) + (f"?{urlencode(pairs)}" if pairs else "")

    def here(self, /, **changes: Any) -> str:
        """The address of this page with other words in its query; None takes one away."""
        said: dict[str, Any] = {}
        for name, value in self.words_here:
            said.setdefault(name, []).append(value)
        return self.url(self.seen_at, **{**said, **changes})

    @property
    def page_path(self) -> str:
        """Where this page is, inside the site."""
        base = self.where("")
        path: str = self.request.scope["path"]
        return path[len(base) :] if base and path.startswith(base) else path

    @property
    def seen_at(self) -> str:
        """Where this page can be looked at again; what only takes forms is shown at the address above it."""
        return self.page_path if self.page_.method == "GET" else self.site.addresses.shown_at(self.page_path)

    @property
    def words_here(self) -> list[tuple[str, str]]:
        """The words of the query that belong to where this page is looked at again."""
        return [
            (name, value)
            for name, value in self.asked.items()
            if name == "tenant" or self.seen_at == self.page_path
        ]

    @property
    def again(self) -> str:
        """The same page to go on to: its path and its query, inside the site."""
        return self.seen_at + (f"?{urlencode(self.words_here)}" if self.words_here else "")

    # Answers -------------------------------------------------------------------------------------------------------------

    def render(self, template: str, status: int = 200, **facts: Any) -> Response:
        """A page."""
        said = None if self.is_live else self.site.sessions.said(self.request)
        text = self.site.views.render(template, self, {"said": said, **facts})
        response = Response(text, status, {"content-security-policy": POLICY}, "text/html; charset=utf-8")
        if said is not None:
            self.site.sessions.forget_said(response, self.request)
        return response

    def back(self, path: str, words: str, *, good: bool = True, **query: Any) -> Response:
        """After an act: to this page, with these words on it once."""
        response = RedirectResponse(self.url(path, **query), 303)
        self.site.sessions.say(response, self.request, words, good=good)
        return response

    def back_to(
        self, address: str | None, words: str, *, good: bool = True, otherwise: str = "/"
    ) -> Response:
        """The same, to the page the form stood on (its hidden field ``next``), if that is one of ours."""
        wanted = safe_next(address)
        if wanted is None:
            return self.back(otherwise, words, good=good)
        response = RedirectResponse(self.where("") + wanted, 303)
        self.site.sessions.say(response, self.request, words, good=good)
        return response

    @property
    def globals(self) -> Mapping[str, Any]:
        """What every template knows."""
        return {
            "visit": self,
            "url": self.url,
            "here": self.here,
            "may": self.may,
            "now": self.now(),
            "csrf": "" if self.is_live else self.csrf,
            "theme": self.site.sessions.theme(self.request),
            "themes": THEMES,
            "identity": self.identity,
            "chosen_tenant": self.asked.get("tenant"),
            "all_tenants": self.identity.tenant == ALL_TENANTS,
            "read_only": self.service.settings.read_only,
        }


def safe_next(address: str | None) -> str | None:
    """A path of ours to go on to; None for what leads elsewhere.

    >>> safe_next("/jobs?state=failed"), safe_next("//evil.example"), safe_next("https://evil.example")
    ('/jobs?state=failed', None, None)
    """
    if address is None or not address.startswith("/") or address[1:2] in ("/", "\\") or len(address) > 2000:
        return None
    return None if any(ord(letter) < 33 or letter == "\\" for letter in address) else address


def read_form(raw: bytes) -> Fields:
    """What a form sent, as browsers encode it."""
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:
        raise Problem(422, None, "the form cannot be read") from None
    if any("\0" in name or "\0" in value for name, value in pairs):
        raise Problem(422, "bad_text", NO_NUL)
    return Fields([(name, value.replace("\r\n", "\n")) for name, value in pairs])
