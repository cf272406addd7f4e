"""Decorators that declare tasks and preserve the types of their targets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.engine.context import Context
from tidemill.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

Declare = Callable[[Any], BoundTask[Any, Any]]


class TaskDecorator:
    """Decorator returned by ``app.task(…)`` for a function, a coroutine function or a class."""

    def __init__(self, declare: Declare) -> None:
        self._declare = declare

    @overload
    def __call__(self, target: type[Task[Any, R]]) -> BoundTask[..., R]: ...

    @overload
    def __call__(
        self, target: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> BoundTask[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, target: Callable[Concatenate[Context, P], R]) -> BoundTask[P, R, R]: ...

    @overload
    def __call__(
        self, target: Callable[P, Coroutine[Any, Any, R]]
    ) -> BoundTask[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, target: Callable[P, R]) -> BoundTask[P, R, R]: ...

    def __call__(self, target: Any) -> BoundTask[Any, Any, Any]:
        return self._declare(target)


class ScheduledDecorator:
    """Decorator returned by ``app.scheduled(…)`` for a task, or for a function or class to declare as one."""

    def __init__(self, declare: Declare) -> None:
        self._declare = declare

    @overload
    def __call__(self, target: BoundTask[P, R, C]) -> BoundTask[P, R, C]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, target: type[Task[Any, R]]) -> BoundTask[..., R]: ...

    @overload
    def __call__(
        self, target: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> BoundTask[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, target: Callable[Concatenate[Context, P], R]) -> BoundTask[P, R, R]: ...

    @overload
    def __call__(
        self, target: Callable[P, Coroutine[Any, Any, R]]
    ) -> BoundTask[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, target: Callable[P, R]) -> BoundTask[P, R, R]: ...

    def __call__(self, target: Any) -> BoundTask[Any, Any, Any]:
        return self._declare(target)
