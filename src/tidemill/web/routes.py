"""Declaration of operations with method, path and required role.

The role is a required argument, so that no operation is public by accident. The act of an operation is in the table of ``acts``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from starlette.responses import Response

from tidemill.domain.access import Role
from tidemill.errors import BadSettings
from tidemill.web.acts import PUBLIC, RouteAct, act_of

Handler = Callable[[Any], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path, and who may call it."""

    method: str
    path: str
    role: Role | None  #: None: public
    handler: Handler
    status: int = 200  #: status of a successful response
    everywhere: bool = False  #: callers of a single tenant are refused
    creates: bool = False  #: counts against the creation rate, and may be open to callers without a key
    act: RouteAct = field(init=False, default=PUBLIC)  #: its act, and the source of its object

    def __post_init__(self) -> None:
        if self.role is not None:
            act = act_of(self.method, self.path, self.role, everywhere=self.everywhere)
            object.__setattr__(self, "act", act)

    @property
    def shown_path(self) -> str:
        """The path for people and documents, without the notation of parameters that may contain slashes."""
        return self.path.replace(":path}", "}")

    @property
    def mutates(self) -> bool:
        """Whether the operation may change stored data."""
        return self.method != "GET" and self.role is not None


O = TypeVar("O", bound=Operation)  # noqa: E741  (an operation)


class Operations(Generic[O]):
    """The operations of one module, in the order of declaration."""

    def __init__(self) -> None:
        self._operations: list[O] = []

    def __iter__(self) -> Iterator[O]:
        return iter(self._operations)

    def add(self, operation: O) -> None:
        self._operations.append(operation)


def by_path(operations: Iterable[O]) -> dict[str, dict[str, O]]:
    """Group operations by path and method, in matching order; refuse one that is declared twice."""
    paths: dict[str, dict[str, O]] = {}
    for operation in operations:
        if paths.setdefault(operation.path, {}).setdefault(operation.method, operation) is not operation:
            raise BadSettings(f"{operation.method} {operation.path} is declared twice")
    return paths
