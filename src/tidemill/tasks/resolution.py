"""Signatures of functions, and the types that their annotations name."""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NoReturn

from tidemill.errors import BadSettings

_NESTED = ".<locals>."
_UNRESOLVED = (NameError, AttributeError, SyntaxError, TypeError)


class Resolver:
    """Resolves string annotations to types, with the names visible where the function is defined."""

    def __init__(self, task: str, function: Callable[..., Any]) -> None:
        self._task = task
        plain = inspect.unwrap(function)
        while isinstance(plain, functools.partial):
            plain = inspect.unwrap(plain.func)
        if not hasattr(plain, "__globals__") and not inspect.ismethod(plain):
            # For its code, not to test whether it is callable.
            plain = getattr(type(plain), "__call__", plain)  # noqa: B004
        self._globals: dict[str, Any] = getattr(plain, "__globals__", {})
        self._locals = _enclosing_names(getattr(plain, "__qualname__", ""), self._globals)

    def __call__(self, name: str, annotation: Any) -> Any:
        if annotation is inspect.Parameter.empty:
            return Any

        def holder() -> None: ...

        holder.__annotations__ = {"it": annotation}
        try:
            return typing.get_type_hints(holder, self._globals, self._locals, include_extras=True)["it"]
        except _UNRESOLVED as error:
            shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            what = "the return annotation" if name == "return" else f"parameter {name}: the annotation"
            raise BadSettings(
                f"task {self._task}: {what} {shown!r} cannot be resolved ({error}); define or import its names above the "
                "task, and not only under TYPE_CHECKING",
                task=self._task,
                parameter=name,
            ) from error


def _enclosing_names(qualname: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return local names of the enclosing functions, which are on the stack during the decoration."""
    around: set[str] = set()
    while _NESTED in qualname:
        qualname = qualname.rpartition(_NESTED)[0]
        around.add(qualname)
    names: dict[str, Any] = {}
    frame = sys._getframe() if around else None
    while frame is not None:
        if frame.f_globals is namespace and frame.f_code.co_qualname in around:
            names = dict(frame.f_locals) | names
        frame = frame.f_back
    return names


def function_signature(task: str, function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, with names that are not defined yet."""
    try:
        if sys.version_info >= (3, 14):
            import annotationlib

            return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise BadSettings(f"task {task}: its signature cannot be read: {error}", task=task) from error


def is_context(task: str, name: str, annotation: Any) -> bool:
    """Whether the worker passes this parameter: ``Context``, or ``Context | None``."""
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return is_context(task, name, typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        kinds = [is_context(task, name, a) for a in typing.get_args(annotation) if a is not type(None)]
        if any(kinds) and not all(kinds):
            refuse_parameter(
                task, name, "it is a context or something else; annotate it with the context alone"
            )
        return any(kinds)
    kind = origin or annotation
    return isinstance(kind, type) and bool(getattr(kind, "__tidemill_context__", False))


def refuse_parameter(task: str, parameter: str, why: str) -> NoReturn:
    """Raise an error about a parameter of a task."""
    raise BadSettings(f"task {task}: parameter {parameter}: {why}", task=task, parameter=parameter)
