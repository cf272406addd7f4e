"""Apps that a name refers to indirectly: by a factory, or by a web application."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from tidemill.engine.import_failures import described
from tidemill.errors import BadSettings


def is_factory(value: object) -> bool:
    """Whether to call this value for an app: functions only, because a task and a class are callable too."""
    return inspect.isroutine(value) or isinstance(value, functools.partial)


def call_factory(factory: Any, where: str) -> object:
    """Call a factory and return its result; raise an error that explains why it cannot be called."""
    if inspect.iscoroutinefunction(factory):
        raise BadSettings(f"{where} is an async function; a factory must be a plain function", app=where)
    if needed := list(_required(factory)):
        raise BadSettings(
            f"{where} is a function with required arguments ({', '.join(needed)}); a factory is called without arguments, "
            "so give them default values",
            app=where,
        )
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise BadSettings(f"{where}() failed: {described(error)}", app=where) from error


def apps_in(value: object, kind: type[Any]) -> list[Any]:
    """The apps that a value stands for: itself, or those whose API or dashboard is mounted in it."""
    return list({id(app): app for app in _apps_in(value, kind)}.values())


def _apps_in(value: Any, kind: type[Any]) -> Iterator[Any]:
    if isinstance(value, kind):
        yield value
        return
    app = getattr(getattr(getattr(value, "state", None), "tidemill", None), "app", None)
    if isinstance(app, kind):
        yield app
        return
    extensions = getattr(value, "extensions", None)  # of a Flask application
    if isinstance(extensions, dict) and isinstance(extensions.get("tidemill"), kind):
        yield extensions["tidemill"]
        return
    routes = getattr(value, "routes", None)
    for route in routes if isinstance(routes, list) else ():
        if (inner := getattr(route, "app", None)) is not None:
            yield from _apps_in(inner, kind)


def _required(factory: Any) -> Iterator[str]:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # a function of a C extension
        return
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            yield parameter.name
