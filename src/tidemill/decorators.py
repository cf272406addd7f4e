"""Decorators that declare tasks and preserve the types of their targets."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.client.schedules.schedule import ScheduleKeywords
from tidemill.domain.triggers.base import Trigger
from tidemill.tasks.options import TaskKeywords
from tidemill.tasks.task import Task

if TYPE_CHECKING:
    from tidemill.engine.context import Context

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


class TaskDeclarer:
    """Base class of everything with ``task`` and ``scheduled`` decorators: apps and task groups."""

    def _declare(self, target: Callable[..., Any], options: TaskKeywords) -> BoundTask[Any, Any]:
        raise NotImplementedError

    def schedule(
        self,
        task: BoundTask[Any, Any, Any] | str,
        trigger: Trigger | str,
        key: str | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> None:
        """Declare a schedule of a task."""
        raise NotImplementedError

    @overload
    def task(self, target: type[Task[Any, R]], /) -> BoundTask[..., R]: ...

    @overload
    def task(
        self, target: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> BoundTask[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def task(self, target: Callable[Concatenate[Context, P], R], /) -> BoundTask[P, R, R]: ...

    @overload
    def task(
        self, target: Callable[P, Coroutine[Any, Any, R]], /
    ) -> BoundTask[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def task(self, target: Callable[P, R], /) -> BoundTask[P, R, R]: ...

    @overload
    def task(self, target: None = None, /, **options: Unpack[TaskKeywords]) -> TaskDecorator: ...

    def task(self, target: Callable[..., Any] | None = None, /, **options: Unpack[TaskKeywords]) -> Any:
        """Declare a function, a coroutine function or a class as a task, with or without options."""
        if target is None:
            return TaskDecorator(lambda given: self._declare(given, options))
        return self._declare(target, options)

    def scheduled(
        self, trigger: Trigger | str, key: str | None = None, **options: Unpack[ScheduleKeywords]
    ) -> ScheduledDecorator:
        """Declare a schedule of a task, and the task if it is not declared yet: ``@app.scheduled(Cron("0 2 * * *"))``."""

        def decorate(target: Any) -> BoundTask[Any, Any]:
            task = target if isinstance(target, BoundTask) else self._declare(target, {})
            self.schedule(task, trigger, key, **options)
            return task

        return ScheduledDecorator(decorate)
