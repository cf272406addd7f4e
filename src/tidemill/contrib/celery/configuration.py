"""``app.conf``: Celery's settings by name, with the defaults of those that have an effect."""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from tidemill.contrib.celery.exceptions import ImproperlyConfigured

DEFAULTS: dict[str, Any] = {
    "beat_schedule": {},
    "enable_utc": True,
    "imports": (),
    "include": (),
    "task_always_eager": False,
    "task_annotations": None,
    "task_default_priority": 0,
    "task_default_queue": "celery",
    "task_default_rate_limit": None,
    "task_eager_propagates": False,
    "task_ignore_result": False,
    "task_routes": None,
    "task_serializer": "json",
    "task_soft_time_limit": None,
    "task_time_limit": None,
    "task_track_started": False,
    "timezone": None,
}
"""Settings that have an effect here, and their defaults, which are Celery's."""

OLD_NAMES = {
    "CELERYBEAT_SCHEDULE": "beat_schedule",
    "CELERY_ALWAYS_EAGER": "task_always_eager",
    "CELERY_DEFAULT_QUEUE": "task_default_queue",
    "CELERY_EAGER_PROPAGATES_EXCEPTIONS": "task_eager_propagates",
    "CELERY_IGNORE_RESULT": "task_ignore_result",
    "CELERY_IMPORTS": "imports",
    "CELERY_INCLUDE": "include",
    "CELERY_ROUTES": "task_routes",
    "CELERY_TASK_SERIALIZER": "task_serializer",
    "CELERY_TIMEZONE": "timezone",
    "CELERYD_TASK_TIME_LIMIT": "task_time_limit",
    "CELERYD_TASK_SOFT_TIME_LIMIT": "task_soft_time_limit",
}
"""The upper-case names of Celery 3."""


class Configuration(Mapping[str, Any]):
    """The settings of a Celery app, as attributes and as items."""

    def __init__(self) -> None:
        vars(self)["_values"] = {}

    def __getattr__(self, name: str) -> Any:
        values: dict[str, Any] = vars(self)["_values"]
        if name in values:
            return values[name]
        if name in DEFAULTS:
            return DEFAULTS[name]
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __iter__(self) -> Iterator[str]:
        return iter({**DEFAULTS, **vars(self)["_values"]})

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def update(self, given: Mapping[str, Any] | None = None, **more: Any) -> None:
        """Change settings: ``app.conf.update(task_track_started=True)``."""
        for name, value in {**(given or {}), **more}.items():
            key = OLD_NAMES.get(name, name.lower() if name.isupper() else name)
            if key == "task_serializer" and value != "json":
                raise ImproperlyConfigured(f"task_serializer is {value!r}; Tidemill sends JSON only")
            vars(self)["_values"][key] = value

    def read(self, source: Any, namespace: str | None = None) -> None:
        """Take settings from a module, an object, a mapping, or the name of one."""
        given = _object_named(source) if isinstance(source, str) else source
        values = (
            dict(given)
            if isinstance(given, Mapping)
            else {name: getattr(given, name) for name in dir(given) if not name.startswith("_")}
        )
        prefix = f"{namespace}_" if namespace else ""
        for name, value in values.items():
            if not isinstance(name, str) or not name.startswith(prefix):
                continue
            key = OLD_NAMES.get(name) or name.removeprefix(prefix).lower()
            if prefix or key in DEFAULTS or name in OLD_NAMES:
                self.update({key: value})

    def route(self, task: str) -> Mapping[str, Any]:
        """Return the options that ``task_routes`` gives a task."""
        routes = self.task_routes
        for route in routes if isinstance(routes, list | tuple) else [routes]:
            router = _object_named(route) if isinstance(route, str) else route
            options: Any = None
            if callable(router):
                options = router(task, [], {}, {})
            elif isinstance(router, Mapping):
                options = _matching(router, task)
            if options:
                return {"queue": options} if isinstance(options, str) else dict(options)
        return {}

    def annotations(self, task: str) -> Mapping[str, Any]:
        """Return the task attributes that ``task_annotations`` sets."""
        given = self.task_annotations or {}
        return {**given.get("*", {}), **given.get(task, {})} if isinstance(given, Mapping) else {}


def _matching(routes: Mapping[Any, Any], task: str) -> Any:
    if task in routes:
        return routes[task]
    for pattern, route in routes.items():
        if hasattr(pattern, "match") and pattern.match(task):
            return route
        if isinstance(pattern, str) and fnmatch.fnmatchcase(task, pattern):
            return route
    return None


def _object_named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    try:
        source = importlib.import_module(module)
    except ModuleNotFoundError:
        parent, _, attribute = module.rpartition(".")
        if not parent:
            raise
        source = importlib.import_module(parent)
    return getattr(source, attribute) if attribute else source
