"""A declared task: a name, a function to call, its options and its codec. It cannot enqueue; the client can."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from tidemill.domain.decide import Policy, stored_policy
from tidemill.domain.job import Details, Execution
from tidemill.domain.requests import task_facts
from tidemill.errors import BadSettings
from tidemill.tasks.codec import ArgumentsCodec, ResultCodec, arguments_codec, result_codec
from tidemill.tasks.options import TaskOptions

C = TypeVar("C")
R = TypeVar("R")


class Task(Generic[C, R]):
    """Base of tasks written as classes: a ``run`` method, and a say in its own retries.

    ``C`` is the type of what the task works on, ``R`` of what it returns. A fresh object is made for every execution, without
    arguments::

        @app.task
        class Resize(Task[Picture, int]):
            def run(self, picture: Picture, ctx: Context) -> int: ...
            def should_retry(self, execution: Execution) -> bool: ...
    """

    def should_retry(self, execution: Execution) -> bool:
        """Whether the failed execution is worth another attempt; the policy still bounds how many."""
        return True

    def retry_delay(self, execution: Execution) -> timedelta | None:
        """How long to wait before the next attempt; None leaves it to the policy."""
        return None


class Shape(NamedTuple):
    """Where a class declares its arguments and its result, if that is not at ``run``; from ``__tidemill_shape__``."""

    arguments: Callable[..., Any]
    result: Callable[..., Any]
    is_async: bool


@dataclass(frozen=True, slots=True)
class Declared:
    """What the registry keeps of a task."""

    options: TaskOptions
    target: Callable[..., Any]  #: what the user wrote: a function, a coroutine function or a class
    arguments: ArgumentsCodec
    result: ResultCodec
    context_parameter: str | None
    is_async: bool
    is_class: bool

    @property
    def name(self) -> str:
        """Its key in the registry."""
        return self.options.name

    @property
    def description(self) -> str | None:
        """What is said of it, whole: by its options, else by its own docstring. What a class inherits says nothing of it."""
        return inspect.cleandoc(self.options.description or self.target.__doc__ or "").strip() or None

    @property
    def summary(self) -> str | None:
        """The first line of its description."""
        return None if self.description is None else self.description.partition("\n")[0]

    @property
    def facts(self) -> dict[str, object]:
        """Its options as plain data, for those who do not import it."""
        return task_facts(self.options, self.arguments.defaults() if self.options.limits else None)

    def policy(self, details: Details) -> Policy:
        """How a job of this task reacts to trouble: as the task says, unless the call said otherwise."""
        policy = self.options.policy
        return stored_policy(policy, details) if details.options else policy


def declare(target: Callable[..., Any], options: TaskOptions) -> Declared:
    """Read a function or a class; an annotation that cannot be a task's is refused with its name."""
    is_class = inspect.isclass(target)
    if is_class and not callable(getattr(target, "run", None)):
        raise BadSettings(f"task {options.name}: class {target.__name__} has no run method")
    function: Callable[..., Any] = target.run if is_class else target  # type: ignore[attr-defined]
    shape = Shape(function, function, inspect.iscoroutinefunction(function))
    if is_class and hasattr(target, "__tidemill_shape__"):
        shape = target.__tidemill_shape__()
    arguments = arguments_codec(options.name, shape.arguments, method=is_class)
    return Declared(
        options=options,
        target=target,
        arguments=arguments,
        result=result_codec(options.name, shape.result),
        context_parameter=arguments.context_parameter,
        is_async=shape.is_async,
        is_class=is_class,
    )


def default_name(target: Callable[..., Any]) -> str:
    """A task's name unless it is given one: its function's or class's."""
    return getattr(target, "__name__", type(target).__name__)
