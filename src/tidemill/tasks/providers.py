"""Parameters of a task that a provider function fills in when the job runs."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from tidemill.errors import BadSettings
from tidemill.tasks.resolution import Resolver, function_signature, is_context, refuse_parameter

PROVIDED: Any = ...
"""Default of a provided parameter, so that type checkers do not ask for it: ``db: Annotated[Db, Provide(get_db)] = PROVIDED``."""


class Provide:
    """Marks a parameter that the worker fills in: ``Annotated[Session, Provide(get_session)]``.

    The provider is a function, a coroutine function, or a generator of either kind that yields the value once; what
    follows its ``yield`` runs after the job. It may have a ``Context`` parameter and provided parameters of its own. Each
    provider is called once for each job, unless ``cached`` is false.
    """

    __slots__ = ("cached", "function")

    def __init__(self, function: Callable[..., Any], *, cached: bool = True) -> None:
        if not callable(function):
            raise BadSettings(f"Provide takes a function; got a {type(function).__name__}")
        self.function, self.cached = function, cached

    def __repr__(self) -> str:
        return f"Provide({name_of(self.function)})"


class ProviderKind(Enum):
    """How a provider gives its value."""

    VALUE = "value"
    COROUTINE = "coroutine"
    GENERATOR = "generator"
    ASYNC_GENERATOR = "async generator"


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider with the parameters that it needs."""

    function: Callable[..., Any]
    kind: ProviderKind
    cached: bool
    context_parameters: tuple[str, ...]
    providers: tuple[tuple[str, Provider], ...]


def marker_of(annotation: Any, default: Any) -> Provide | None:
    """Return the marker of a provided parameter; None for an argument of the job.

    FastAPI's ``Depends(…)`` objects are accepted too, in the annotation or as the default.
    """
    metadata: tuple[Any, ...] = ()
    plain = annotation
    if typing.get_origin(annotation) is Annotated:
        plain, *rest = typing.get_args(annotation)
        metadata = tuple(rest)
    for value in (*metadata, default):
        if isinstance(value, Provide):
            return value
        if hasattr(value, "dependency") and hasattr(value, "use_cache"):
            # ``Depends()`` without a function stands for the annotated class.
            return Provide(value.dependency or plain, cached=bool(value.use_cache))
    return None


def read_provider(task: str, parameter: str, marker: Provide, above: tuple[Any, ...] = ()) -> Provider:
    """Read the parameters of a provider. Raises for one that nothing can fill."""
    function = marker.function
    if function in above:
        refuse_parameter(task, parameter, f"provider {name_of(function)} needs itself")
    called = function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
    resolve = Resolver(task, function.__init__ if inspect.isclass(function) else function)
    contexts: list[str] = []
    providers: list[tuple[str, Provider]] = []
    for name, given in function_signature(task, function).parameters.items():
        if given.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        annotation = resolve(name, given.annotation)
        inner = marker_of(annotation, given.default)
        if inner is not None:
            providers.append((name, read_provider(task, parameter, inner, (*above, function))))
        elif is_context(task, name, annotation):
            contexts.append(name)
        elif given.default is inspect.Parameter.empty:
            refuse_parameter(
                task,
                parameter,
                f"provider {name_of(function)} needs {name!r}, which no job can give;"
                " a provider takes a Context, values of other providers, and parameters with defaults",
            )
        if given.kind is inspect.Parameter.POSITIONAL_ONLY and given.default is inspect.Parameter.empty:
            refuse_parameter(task, parameter, f"provider {name_of(function)}: {name!r} is positional-only")
    return Provider(function, _kind_of(called), marker.cached, tuple(contexts), tuple(providers))


def _kind_of(function: Any) -> ProviderKind:
    if inspect.isasyncgenfunction(function):
        return ProviderKind.ASYNC_GENERATOR
    if inspect.isgeneratorfunction(function):
        return ProviderKind.GENERATOR
    if inspect.iscoroutinefunction(function):
        return ProviderKind.COROUTINE
    return ProviderKind.VALUE


def name_of(function: Any) -> str:
    """Return the name of a function or a class for messages."""
    return str(getattr(function, "__name__", None) or type(function).__name__)
