"""Declaration of pages, and the addresses at which they can be viewed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from starlette.routing import compile_path

from tidemill.domain.access import Role
from tidemill.web.routes import Handler, Operation, Operations


class PageRoutes(Operations[Operation]):
    """The pages of one module, in the order of declaration."""

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
            self.add(Operation(method=method, path=path, role=role, handler=handler, everywhere=everywhere))
            return handler

        return decorate


class Addresses:
    """All page addresses in matching order, and which of them accept GET."""

    def __init__(self, pages: Iterable[Operation]) -> None:
        methods: dict[str, set[str]] = {}
        for page in pages:
            methods.setdefault(page.path, set()).add(page.method)
        self._patterns = [(compile_path(path)[0], "GET" in own) for path, own in methods.items()]

    def can_be_seen(self, path: str) -> bool:
        """Whether a page exists at this path that accepts GET."""
        return next((is_seen for pattern, is_seen in self._patterns if pattern.match(path)), False)

    def shown_at(self, path: str) -> str:
        """Return the nearest path, this one or an ancestor, with a page that accepts GET.

        In a path, ``-`` takes the place of a name and precedes an action.
        """
        while path.strip("/"):
            if not path.endswith("/-") and self.can_be_seen(path):
                return path
            path = path.rpartition("/")[0]
        return "/"
