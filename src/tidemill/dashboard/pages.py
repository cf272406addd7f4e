"""Declaring pages: verb, path and least role. A page without a role cannot be written down. And which addresses show one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import compile_path

from tidemill.domain.access import Role

if TYPE_CHECKING:
    from tidemill.dashboard.visit import Visit

Handler = Callable[["Visit"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Page:
    """One verb of one address."""

    method: str
    path: str
    role: Role | None  #: None: everybody, also who has not signed in
    handler: Handler
    everywhere: bool  #: who sees one tenant only is refused

    status = 200
    creates = False

    @property
    def mutates(self) -> bool:
        """Whether it may change something that is stored."""
        return self.method != "GET" and self.role is not None


class Pages:
    """The pages of one room, in the order they were declared."""

    def __init__(self) -> None:
        self._pages: list[Page] = []

    def __iter__(self) -> Iterator[Page]:
        return iter(self._pages)

    def get(self, path: str, *, role: Role | None, everywhere: bool = False) -> Callable[[Handler], Handler]:
        """A page to look at."""
        return self._declare("GET", path, role, everywhere)

    def post(self, path: str, *, role: Role | None, everywhere: bool = False) -> Callable[[Handler], Handler]:
        """What a form is sent to."""
        return self._declare("POST", path, role, everywhere)

    def _declare(
        self, method: str, path: str, role: Role | None, everywhere: bool
    ) -> Callable[[Handler], Handler]:
        def decorate(handler: Handler) -> Handler:
            self._pages.append(Page(method, path, role, handler, everywhere))
            return handler

        return decorate


class Addresses:
    """All addresses in the order they are looked at, and which of them show something."""

    def __init__(self, pages: Iterable[Page]) -> None:
        verbs: dict[str, set[str]] = {}
        for page in pages:
            verbs.setdefault(page.path, set()).add(page.method)
        self._known = [(compile_path(path)[0], "GET" in found) for path, found in verbs.items()]

    def can_be_seen(self, path: str) -> bool:
        """Whether there is a page to look at, and not only something that takes a form."""
        return next((seen for pattern, seen in self._known if pattern.match(path)), False)

    def shown_at(self, path: str) -> str:
        """The nearest address, this one or one above it, at which there is a page to look at.

        A ``-`` in an address stands where a name would, before what is done and not looked at.
        """
        while path.strip("/"):
            if not path.endswith("/-") and self.can_be_seen(path):
                return path
            path = path.rpartition("/")[0]
        return "/"
