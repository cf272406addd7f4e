"""Declaration of pages with method, path and required role.

The role is a required argument, so that no page is public by accident.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import compile_path

from tidemill.domain.access import Role

if TYPE_CHECKING:
    from tidemill.dashboard.page_request import PageRequest

Handler = Callable[["PageRequest"], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """One method of one address."""

    method: str
    path: str
    role: Role | None  #: None: no sign-in needed
    handler: Handler
    everywhere: bool  #: users of a single tenant are refused

    status = 200
    creates = False

    @property
    def mutates(self) -> bool:
        """Whether the page may change stored data."""
        return self.method != "GET" and self.role is not None


class PageRoutes:
    """The pages of one module, in the order of declaration."""

    def __init__(self) -> None:
        self._pages: list[PageRoute] = []

    def __iter__(self) -> Iterator[PageRoute]:
        return iter(self._pages)

    def get(self, path: str, *, role: Role | None, everywhere: bool = False) -> Callable[[Handler], Handler]:
        """Declare a page."""
        return self._declare("GET", path, role, everywhere)

    def post(self, path: str, *, role: Role | None, everywhere: bool = False) -> Callable[[Handler], Handler]:
        """Declare the target of a form."""
        return self._declare("POST", path, role, everywhere)

    def _declare(
        self, method: str, path: str, role: Role | None, everywhere: bool
    ) -> Callable[[Handler], Handler]:
        def decorate(handler: Handler) -> Handler:
            self._pages.append(PageRoute(method, path, role, handler, everywhere))
            return handler

        return decorate


class Addresses:
    """All page addresses in matching order, and which of them accept GET."""

    def __init__(self, pages: Iterable[PageRoute]) -> None:
        verbs: dict[str, set[str]] = {}
        for page in pages:
            verbs.setdefault(page.path, set()).add(page.method)
        self._known = [(compile_path(path)[0], "GET" in found) for path, found in verbs.items()]

    def can_be_seen(self, path: str) -> bool:
        """Whether a page exists at this path that accepts GET."""
        return next((seen for pattern, seen in self._known if pattern.match(path)), False)

    def shown_at(self, path: str) -> str:
        """Return the nearest path, this one or an ancestor, with a page that accepts GET.

        In a path, ``-`` takes the place of a name and precedes an action.
        """
        while path.strip("/"):
            if not path.endswith("/-") and self.can_be_seen(path):
                return path
            path = path.rpartition("/")[0]
        return "/"
