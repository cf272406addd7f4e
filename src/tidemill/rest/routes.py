"""Declaration of API routes with their models."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from tidemill.domain.access import Role
from tidemill.rest.models import BodyModel, NoQuery, QueryModel
from tidemill.web.routes import Handler, Operation, Operations


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOperation(Operation):
    """One operation of the API, as the OpenAPI document describes it."""

    tag: str
    query: type[NoQuery]
    body: type[BodyModel] | None = None
    body_optional: bool = False
    raw: bool = False  #: the handler reads the body itself
    answer: Any = None  #: response model for the OpenAPI document; None: no content
    stream: bool = False  #: responds with server-sent events
    events: tuple[type[BaseModel], ...] = ()  #: models of the data of further events of a stream
    also: Mapping[int, str] = field(default_factory=dict)  #: further statuses and what they mean
    media: str = "application/json"

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


class Routes(Operations[ApiOperation]):
    """The routes of one resource. A route takes the fields of ``ApiOperation`` as keyword arguments."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self.tag = tag

    def declare(
        self, method: str, path: str, *, role: Role | None, query: type[NoQuery] | None = None, **rest: Any
    ) -> Callable[[Handler], Handler]:
        """Declare the decorated coroutine as a route. ``role=None`` makes it public."""
        model = query or (NoQuery if role is None else QueryModel)

        def decorate(handler: Handler) -> Handler:
            self.add(
                ApiOperation(
                    method=method, path=path, role=role, handler=handler, tag=self.tag, query=model, **rest
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
