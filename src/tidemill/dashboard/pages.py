"""Declaring pages: verb, path and least role. A page without a role cannot be written down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.responses import Response

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
