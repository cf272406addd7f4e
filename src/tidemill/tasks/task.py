"""A declared task: name, function, options and codec.

It cannot be enqueued by itself; the client does that.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from tidemill.domain.decide import Policy, stored_policy
from tidemill.domain.durations import Duration
from tidemill.domain.job import Details, Execution
from tidemill.domain.job_requests import task_data
from tidemill.domain.record import Record, stored_record
from tidemill.errors import BadSettings, TaskNotFound
from tidemill.tasks.codec import ArgumentsCodec, LenientArguments, ResultCodec, arguments_codec, result_codec
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.providers import Provider
from tidemill.tasks.secret_values import check_limit_key, check_secret_unique

C = TypeVar("C")
R = TypeVar("R")


class Task(Generic[C, R]):
    """Base class of tasks written as classes: a ``run`` method and optional retry hooks.

    ``C`` is the type of what the task works on, ``R`` of what it returns. A new instance is created for every
    execution, without arguments::

        @app.task
        class Resize(Task[Picture, int]):
            def run(self, picture: Picture, ctx: Context) -> int: ...
            def should_retry(self, execution: Execution) -> bool: ...
    """

    def should_retry(self, execution: Execution) -> bool:
        """Whether to retry after this failed execution. The retry policy still limits the number of attempts."""
        return True

    def retry_delay(self, execution: Execution) -> Duration | None:
        """Return how long to wait before the next attempt. None leaves it to the retry policy."""
        return None


class Shape(NamedTuple):
    """Where a class declares its arguments and result if not at ``run``, as returned by ``__tidemill_shape__``."""

    arguments: Callable[..., Any]
    result: Callable[..., Any]
    is_async: bool


@dataclass(frozen=True, slots=True)
class Declared:
    """A task as stored in the registry."""

    options: TaskOptions
    target: Callable[..., Any]  #: the decorated function, coroutine function or class
    arguments: ArgumentsCodec
    result: ResultCodec
    context_parameter: str | None
    providers: tuple[tuple[str, Provider], ...]  #: of the parameters that the worker fills in
    is_async: bool
    is_class: bool
    #: a function that takes its arguments and nothing else: no context, secrets or values of providers
    is_plain: bool
    #: what workers have stored about its options, if only other processes declare it
    recorded: Mapping[str, Any] | None = None
    #: the default name without a module, under which older code stored jobs; tasks of several modules may share it
    former_name: str | None = None

    @property
    def name(self) -> str:
        """Its key in the registry."""
        return self.options.name

    @property
    def description(self) -> str | None:
        """The full description: from its options, else its own docstring. Inherited docstrings are ignored."""
        return inspect.cleandoc(self.options.description or self.target.__doc__ or "").strip() or None

    @property
    def summary(self) -> str | None:
        """The first line of its description."""
        return None if self.description is None else self.description.partition("\n")[0]

    @property
    def data(self) -> dict[str, object]:
        """Its options as plain data, for processes that do not import it."""
        return task_data(self.options, self.arguments.defaults() if self.options.limits else None)

    def policy(self, details: Details) -> Policy:
        """Return the retry policy of a job: that of the task, unless the call overrides it."""
        policy = self.options.policy
        return stored_policy(policy, details) if details.options else policy

    def record(self, details: Details) -> Record:
        """Return how much of a job is kept: as the task says, unless the call overrides it."""
        record = self.options.record
        return stored_record(record, details.options) if details.options else record


def declare(target: Callable[..., Any], options: TaskOptions) -> Declared:
    """Build a task from a function or a class. Raises for an annotation that a task cannot have."""
    is_class = inspect.isclass(target)
    if is_class and not callable(getattr(target, "run", None)):
        raise BadSettings(f"task {options.name}: class {target.__name__} has no run method")
    function: Callable[..., Any] = target.run if is_class else target  # type: ignore[attr-defined]
    shape = Shape(function, function, inspect.iscoroutinefunction(function))
    if is_class and hasattr(target, "__tidemill_shape__"):
        shape = target.__tidemill_shape__()
    arguments = arguments_codec(options.name, shape.arguments, method=is_class)
    _check_names(options, arguments.names)
    check_secret_unique(options.name, options.unique, arguments.secrets)
    for limit in options.limits:
        check_limit_key(options.name, limit.key, arguments.secrets)
    if options.extra == "ignore":
        arguments = LenientArguments(arguments.task, arguments.signature)
    result = result_codec(options.name, shape.result)
    arguments.check_types()
    result.check_types()
    return Declared(
        options=options,
        target=target,
        arguments=arguments,
        result=result,
        context_parameter=arguments.context_parameter,
        providers=arguments.signature.providers,
        is_async=shape.is_async,
        is_class=is_class,
        is_plain=not (
            is_class or arguments.context_parameter or arguments.secrets or arguments.signature.providers
        ),
    )


@lru_cache(maxsize=1_000)
def undeclared(name: str) -> Declared:
    """Return a task that this process knows by name only. It accepts any JSON arguments and cannot run here."""

    def unknown(**_arguments: Any) -> Any:
        raise TaskNotFound(f"no task is named {name!r} in this process", name=name)

    return declare(unknown, TaskOptions(name=name))


def _check_names(options: TaskOptions, names: Collection[str]) -> None:
    """Raise if a limit or a uniqueness rule names an argument that the task does not have."""
    used = [
        (type(limit).__name__, "key", limit.key) for limit in options.limits if isinstance(limit.key, str)
    ]
    used += [("Unique", "by", name) for name in (options.unique.by if options.unique is not None else ())]
    for kind, option, name in used:
        if name not in names:
            known = ", ".join(names) or "none"
            raise BadSettings(
                f"task {options.name}: {kind}({option}={name!r}) names no argument of the task; its arguments are {known}",
                option=option,
            )


def default_name(target: Callable[..., Any]) -> str:
    """Return a task's default name: that of its function or class."""
    name = getattr(target, "__name__", None)
    if name is None or name == "<lambda>":
        what = "a lambda" if name else f"{target!r}"
        raise BadSettings(
            f"{what} has no name that jobs could be stored under; give one: app.task(name=…)", option="name"
        )
    return str(name)


def module_name(target: Callable[..., Any]) -> str:
    """Return the name of a target's module, also if that is the program that Python was started with.

    Otherwise a job would be stored under another name, depending on who started the program.
    """
    module = str(getattr(target, "__module__", None) or "")
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    return module if file is None else Path(file).stem
