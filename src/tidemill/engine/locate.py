"""Finds an app by the name it can be imported under, and the name of an app that is here.

It imports what the operator named, never what a job says.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from tidemill.clock import Clock
from tidemill.errors import BadSettings
from tidemill.stores.base import Store
from tidemill.tasks.events import Events
from tidemill.tasks.registry import Registry

_imports: list[str] = []


class Application(Protocol):
    """An ``App`` as the engine sees it: the app stands above the engine and imports it, so it cannot be named here."""

    clock: Clock
    migrates: bool
    _client: Any

    @property
    def store(self) -> Store: ...

    @property
    def registry(self) -> Registry: ...

    @property
    def events(self) -> Events: ...

    def store_url(self) -> str | None: ...

    def declare_limits(self) -> None: ...

    def reconcile(self) -> object: ...


def importing() -> bool:
    """Whether an app is being imported just now: the worst moment to start a worker, which would import it again."""
    return bool(_imports)


def find_app(where: str) -> Application:
    """The app at ``"module:attribute"``; a module that holds one app alone need not name it.

    The current directory is searched first, as ``python -m`` does.
    """
    name, _, path = where.partition(":")
    if not name or (":" in where and not path):
        raise BadSettings(f"{where!r} names no app; write it as module:attribute, for example shop.jobs:app")
    module = _imported(name, where)
    return _only_app(module) if not path else _named_app(module, path)


def whereabouts(app: object) -> str | None:
    """The ``"module:attribute"`` under which another process can import this very app; None if there is none."""
    found = [
        f"{name}:{attribute}"
        for name, module in sys.modules.copy().items()
        if name != "__main__" and (attribute := _attribute_of(module, app)) and _importable(name, module)
    ]
    if found:
        return min(found, key=lambda where: (where.count("."), len(where), where))
    main = sys.modules.get("__main__")
    attribute = _attribute_of(main, app)
    name = _name_of_main(main)
    return f"{name}:{attribute}" if attribute and name else None


def _app_class() -> type[Any]:
    kind: type[Any] = importlib.import_module("tidemill.app").App
    return kind


# From a name to an app --------------------------------------------------------------------------------------------------


def _imported(name: str, where: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    _imports.append(name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(error.name + ".")):
            raise BadSettings(
                f"there is no module {error.name!r}, named by {where!r}; it was looked for in {here} and where Python finds "
                f"its packages{_hint(name)}",
                app=where,
            ) from None
        raise BadSettings(
            f"module {name!r} cannot be imported: it needs {error.name!r}, which is not installed", app=where
        ) from error
    except (Exception, SystemExit) as error:
        raise BadSettings(
            f"module {name!r} cannot be imported: {type(error).__name__}: {error}", app=where
        ) from error
    finally:
        _imports.pop()


def _hint(name: str) -> str:
    path = Path(name)
    if path.suffix == ".py" or len(path.parts) > 1:
        dotted = ".".join(path.with_suffix("").parts).lstrip("./\\")
        return f"; a module is named with dots, perhaps {dotted}"
    return ""


def _named_app(module: ModuleType, path: str) -> Application:
    value: Any = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise BadSettings(
                f"module {module.__name__!r} has no {path!r}; {_what_there_is(module)}"
            ) from None
    if not isinstance(value, _app_class()):
        raise BadSettings(
            f"{module.__name__}:{path} is a {type(value).__name__}, no App; {_what_there_is(module)}"
        )
    app: Application = value
    return app


def _only_app(module: ModuleType) -> Application:
    apps = _apps_of(module)
    if len({id(app) for app in apps.values()}) != 1:
        raise BadSettings(f"{module.__name__!r} does not say which app is meant; {_what_there_is(module)}")
    return next(iter(apps.values()))


def _apps_of(module: ModuleType) -> Mapping[str, Application]:
    kind = _app_class()
    return {name: value for name, value in vars(module).items() if isinstance(value, kind)}


def _what_there_is(module: ModuleType) -> str:
    names = sorted(_apps_of(module))
    if not names:
        return "it holds no App"
    return "write " + " or ".join(f"{module.__name__}:{name}" for name in names)


# From an app to a name --------------------------------------------------------------------------------------------------


def _attribute_of(module: ModuleType | None, app: object) -> str | None:
    try:
        names = [name for name, value in vars(module).items() if value is app]
    except (TypeError, RuntimeError):  # no real module, or one that changes while we look
        return None
    return min(names, default=None, key=lambda name: (name.startswith("_"), name))


def _importable(name: str, module: ModuleType) -> bool:
    """Whether that name leads another process to the same file."""
    file = getattr(module, "__file__", None)
    return file is not None and _leads_to(name, Path(file))


def _leads_to(name: str, file: Path) -> bool:
    spec = _searched(name)
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file.resolve()


def _searched(name: str) -> ModuleSpec | None:
    """What an import would find, asked of the finders themselves: ``sys.modules`` says what was, not what can be."""
    spec: ModuleSpec | None = None
    path: Any = None
    for full in _steps(name):
        try:
            spec = next(filter(None, (finder.find_spec(full, path) for finder in sys.meta_path)), None)
        except (ImportError, AttributeError, ValueError):  # a finder of somebody's own
            spec = None
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return spec


def _steps(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def _name_of_main(main: ModuleType | None) -> str | None:
    spec: ModuleSpec | None = getattr(main, "__spec__", None)
    if spec is not None:  # python -m something
        return spec.name if spec.name != "__main__" else None
    file = getattr(main, "__file__", None)
    if file is None:  # typed in by hand, or read from standard input
        return None
    name = Path(file).stem
    return name if "." not in name and _leads_to(name, Path(file)) else None
