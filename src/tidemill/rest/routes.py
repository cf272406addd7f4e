"""Declaration of routes with method, path, required role and models.

The role is a required argument, so that no route is public by accident.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from starlette.responses import Response

from tidemill.domain.access import Role
from tidemill.rest.models import BodyModel, NoQuery, QueryModel

if TYPE_CHECKING:
    from tidemill.rest.api_request import ApiRequest

Handler = Callable[["ApiRequest"], Awaitable[Response]]

READS = frozenset({"GET"})


class Guarded(Protocol):
    """The properties of a route or page that the guard checks."""

    @property
    def role(self) -> Role | None: ...

    @property
    def everywhere(self) -> bool: ...

    @property
    def creates(self) -> bool: ...

    @property
    def mutates(self) -> bool: ...

    @property
    def status(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    role: Role | None  #: None: public
    handler: Handler
    tag: str
    query: type[NoQuery]
    body: type[BodyModel] | None
    body_optional: bool
    answer: Any  #: response model for the OpenAPI document; None: no content
    status: int
    everywhere: bool  #: keys of a single tenant are refused
    creates: bool  #: counts against the creation rate, and may be open to callers without a key
    stream: bool  #: responds with server-sent events
    media: str

    @property
    def mutates(self) -> bool:
        """Whether the route may change data."""
        return self.method not in READS

    @property
    def name(self) -> str:
        """Operation id in the OpenAPI document."""
        return self.handler.__name__

    @property
    def summary(self) -> str:
        return self.words.partition("\n")[0]

    @property
    def words(self) -> str:
        """Docstring of the handler."""
        return inspect.getdoc(self.handler) or self.name.replace("_", " ")


class Routes:
    """The routes of one resource, in the order of declaration."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._acts: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._acts)

    def declare(
        self,
        method: str,
        path: str,
        *,
        role: Role | None,
        query: type[NoQuery] | None = None,
        body: type[BodyModel] | None = None,
        body_optional: bool = False,
        answer: Any = None,
        status: int = 200,
        everywhere: bool = False,
        creates: bool = False,
        stream: bool = False,
        media: str = "application/json",
    ) -> Callable[[Handler], Handler]:
        """Declare the decorated coroutine as a route. ``role=None`` makes it public."""

        asked = query or (NoQuery if role is None else QueryModel)

        def decorate(handler: Handler) -> Handler:
            self._acts.append(
                Operation(
                    method,
                    path,
                    role,
                    handler,
                    self.tag,
                    asked,
                    body,
                    body_optional,
                    answer,
                    status,
                    everywhere,
                    creates,
                    stream,
                    media,
                )
            )
            return handler

        return decorate

    def get(self, path: str, *, role: Role | None, **rest: Any) -> Callable[[Handler], Handler]:
        return self.declare("GET", path, role=role, **rest)

    def post(self, path: str, *, role: Role | None, **rest: Any) -> Callable[[Handler], Handler]:
        return self.declare("POST", path, role=role, **rest)

    def put(self, path: str, *, role: Role | None, **rest: Any) -> Callable[[Handler], Handler]:
        return self.declare("PUT", path, role=role, **rest)

    def patch(self, path: str, *, role: Role | None, **rest: Any) -> Callable[[Handler], Handler]:
        return self.declare("PATCH", path, role=role, **rest)

    def delete(self, path: str, *, role: Role | None, **rest: Any) -> Callable[[Handler], Handler]:
        return self.declare("DELETE", path, role=role, status=204, **rest)
