"""Look-up of an app by its import name, and of the import name of an app.

It imports only modules that the operator named, never ones that a job names.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from tidemill.archive.duty import RetentionDuty
from tidemill.clock import Clock
from tidemill.delivery.background import BackgroundThread
from tidemill.engine.app_factories import apps_in, call_factory, is_factory
from tidemill.engine.completion import Connections
from tidemill.engine.import_failures import described, in_file
from tidemill.errors import BadSettings, UsageError
from tidemill.stores.base import Store
from tidemill.stores.open import without_driver
from tidemill.tasks.events import Events
from tidemill.tasks.hooks import Hooks
from tidemill.tasks.registry import Registry

_imports: list[str] = []

_made: WeakKeyDictionary[object, str] = WeakKeyDictionary()
"""The factory's name for every app that ``find_app`` created with one."""

_found: WeakKeyDictionary[object, str] = WeakKeyDictionary()
"""The import paths that were found for apps."""


class Application(Protocol):
    """An ``App`` as the engine sees it. The app layer imports the engine, so the engine cannot import ``App``."""

    clock: Clock
    migrates: bool
    deployed_at: datetime | None

    @property
    def store(self) -> Store: ...

    @property
    def registry(self) -> Registry: ...

    @property
    def stores(self) -> Mapping[str, Store]: ...

    @property
    def events(self) -> Events: ...

    @property
    def hooks(self) -> Hooks: ...

    @property
    def connections(self) -> Connections: ...

    def store_url(self, name: str | None = None) -> str | None: ...

    def at_store(self, name: str) -> Application: ...

    @property
    def live_stores(self) -> tuple[str, ...]: ...

    def retention_duty(self) -> RetentionDuty | None: ...

    def background_thread(self) -> BackgroundThread | None: ...

    def declare_limits(self) -> None: ...

    def reconcile(self) -> object: ...

    def confirm(self) -> None: ...

    def finalize(self) -> None: ...

    def close(self) -> None: ...


class _StartedByImport(UsageError):
    """Raised when a module starts a worker while it is being imported."""


def refuse_while_importing() -> None:
    """Refuse to start a worker while ``find_app`` imports its module: that worker's processes would import it again."""
    if _imports:
        raise _StartedByImport(
            f"module {_imports[-1]!r} starts a worker when it is imported; "
            'move the lines that start it under `if __name__ == "__main__":` in that file'
        )


def find_app(where: str) -> Application:
    """The app at ``"module:attribute"``. The attribute may be omitted if the module contains exactly one app.

    The attribute may also be a function that returns the app, or a web application in which the app's API or dashboard
    is mounted. The current directory is searched first, as ``python -m`` does.
    """
    name, _, path = where.partition(":")
    if not name or (":" in where and not path):
        raise BadSettings(f"{where!r} names no app; write it as module:attribute, for example shop.jobs:app")
    _check_module(name, path, where)
    module = _imported(name, where)
    app = _only_app(module) if not path else _named_app(module, path)
    app.finalize()
    return app


def import_path(app: object) -> str | None:
    """The path that ``whereabouts`` found first. The search reads every loaded module, so its answer is kept."""
    if (path := _found.get(app)) is None and (path := whereabouts(app)) is not None:
        _found[app] = path
    return path


def whereabouts(app: object) -> str | None:
    """The ``"module:attribute"`` under which another process can import this app; None if there is none."""
    found = [
        f"{name}:{attribute}"
        for name, module in sys.modules.copy().items()
        if name != "__main__" and (attribute := _attribute_of(module, app)) and _importable(name, module)
    ]
    if not found and app in _made:
        return _made[app]
    if found:
        return min(found, key=lambda where: (where.count("."), len(where), where))
    main = sys.modules.get("__main__")
    attribute = _attribute_of(main, app)
    name = _name_of_main(main)
    return f"{name}:{attribute}" if attribute and name else None


def unused_store(app: Application, where: str) -> str | None:
    """A warning if ``TIDEMILL_STORE`` names another store than the app, which then keeps its own."""
    wanted, own = os.environ.get("TIDEMILL_STORE"), app.store_url()
    if not wanted or own is None or without_driver(wanted) == without_driver(own):
        return None
    return (
        f"TIDEMILL_STORE is {_without_password(wanted)} and is not used: {where} names its own store, "
        f"{_without_password(own)}; write App() without a store to use the variable"
    )


def _without_password(url: str) -> str:
    return re.sub(r"//([^/@:]*):[^/@]*@", r"//\1@", url)


def user_traceback(error: BaseException) -> str:
    """The traceback of a failed import, without the frames of the import system and of Tidemill's own search."""
    found = traceback.TracebackException.from_exception(error)
    chain: list[traceback.TracebackException | None] = [found]
    while chain:
        part = chain.pop()
        if part is not None:
            part.stack[:] = [frame for frame in part.stack if not _of_import_system(frame.filename)]
            chain += [part.__cause__, part.__context__]
    return "".join(found.format()).strip()


def _of_import_system(filename: str) -> bool:
    return filename.startswith("<frozen importlib") or filename in (importlib.__file__, __file__)


def _app_class() -> type[Any]:
    kind: type[Any] = importlib.import_module("tidemill.app").App
    return kind


# From a name to an app --------------------------------------------------------------------------------------------------


def _hint(where: str) -> str:
    """Advice for a name that has a dot where the colon belongs.

    >>> _hint("shop.app"), _hint("shop:app"), _hint("shop")
    ('; an app in module shop is written shop:app', '', '')
    """
    module, dot, attribute = where.rpartition(".")
    return f"; an app in module {module} is written {module}:{attribute}" if dot and ":" not in where else ""


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
                f"there is no module {error.name!r}, named by {where!r}; searched {here} and the directories where Python finds "
                f"its packages; run the command in the directory of the module{_hint(where)}",
                app=where,
            ) from None
        raise BadSettings(
            f"module {name!r} cannot be imported: it needs {error.name!r}, which is not installed{in_file(error)}",
            app=where,
        ) from error
    except _StartedByImport as error:
        raise BadSettings(str(error), app=where) from None
    except (Exception, SystemExit) as error:
        raise BadSettings(f"module {name!r} cannot be imported: {described(error)}", app=where) from error
    finally:
        _imports.pop()


def _check_module(name: str, path: str, where: str) -> None:
    """Refuse a file path; the error contains the name of its module."""
    file = Path(name.replace("\\", "/"))
    if file.suffix != ".py" and len(file.parts) < 2:
        return
    if file.is_absolute() or ".." in file.parts:
        parts, cure = [file.stem], f"change to {file.parent} and write"
    else:
        parts, cure = list(file.with_suffix("").parts), "write"
    module = ".".join(parts) + (f":{path}" if path else "")
    raise BadSettings(f"{where!r} is a file, not a module; {cure} {module}", app=where)


def _named_app(module: ModuleType, path: str) -> Application:
    value: Any = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise BadSettings(
                f"module {module.__name__!r} has no {path!r}; {_what_there_is(module)}"
            ) from None
    where = f"{module.__name__}:{path}"
    made = is_factory(value)
    if made:
        _imports.append(module.__name__)
        try:
            value = call_factory(value, where)
        finally:
            _imports.pop()
    apps = apps_in(value, _app_class())
    if len(apps) != 1:
        verb = "returns" if made else "is"
        name = type(value).__name__
        kind = f"{verb} {'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"
        if apps:
            raise BadSettings(f"{where} {kind} with {len(apps)} apps; name one App instead", app=where)
        if made:
            raise BadSettings(f"{where} {kind}; a factory must return an App", app=where)
        raise BadSettings(f"{where} {kind}, not an App; {_what_there_is(module)}")
    app: Application = apps[0]
    if made:
        _made[app] = where
    return app


def _only_app(module: ModuleType) -> Application:
    apps = _apps_of(module)
    if len({id(app) for app in apps.values()}) != 1:
        raise BadSettings(f"{module.__name__!r} does not specify the app; {_what_there_is(module)}")
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
    except (TypeError, RuntimeError):  # not a real module, or one that changes during the iteration
        return None
    return min(names, default=None, key=lambda name: (name.startswith("_"), name))


def _importable(name: str, module: ModuleType) -> bool:
    """Whether this name leads another process to the same file."""
    file = getattr(module, "__file__", None)
    return file is not None and _leads_to(name, Path(file))


def _leads_to(name: str, file: Path) -> bool:
    spec = _searched(name)
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file.resolve()


def _searched(name: str) -> ModuleSpec | None:
    """The spec that an import would find. The finders are asked, because ``sys.modules`` contains past imports only."""
    spec: ModuleSpec | None = None
    path: Any = None
    for full in _steps(name):
        try:
            spec = next(filter(None, (finder.find_spec(full, path) for finder in sys.meta_path)), None)
        except (ImportError, AttributeError, ValueError):  # a custom finder
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
    if file is None:  # interactive, or read from standard input
        return None
    name = Path(file).stem
    return name if "." not in name and _leads_to(name, Path(file)) else None
