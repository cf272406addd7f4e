"""``App``: what a user holds. Stores, tasks, jobs and events in one place."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack, overload

from tidemill.client.archive import Archive
from tidemill.client.audit import Audit
from tidemill.client.bound import BoundTask, Recipe
from tidemill.client.control import Control
from tidemill.client.core import Client
from tidemill.client.declared import Declarations, Reconciled
from tidemill.client.definitions import Definitions
from tidemill.client.jobs import Jobs
from tidemill.client.keys import Keys
from tidemill.client.limits import Limits
from tidemill.client.operations import Operations
from tidemill.client.options import CallKeywords
from tidemill.client.schedules import Schedules
from tidemill.clock import Clock, SystemClock
from tidemill.domain.job import DEFAULT_TENANT
from tidemill.domain.payload import PayloadLimits
from tidemill.domain.retention import DEFAULT_POLICIES, read_policies
from tidemill.domain.triggers.base import Trigger
from tidemill.engine.context import Context
from tidemill.errors import BadSettings
from tidemill.stores.base import Store
from tidemill.stores.open import open_store
from tidemill.tasks.ambient import tenant_scope
from tidemill.tasks.events import Events
from tidemill.tasks.limit_rules import read_app_limits
from tidemill.tasks.middleware import Middleware
from tidemill.tasks.options import check_name, read_options
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import Task, declare, default_name
from tidemill.testing.runner import Testing

if TYPE_CHECKING:
    from socket import socket

    from tidemill.engine.worker import EmbeddedWorker, Tick

P = ParamSpec("P")
R = TypeVar("R")

_SETTINGS = ("archive", "args_limit", "limits", "result_limit", "migrate", "name")

Trigger.present = SystemClock().now  # so that a trigger can be asked for its next fires


class _TaskDecorator:
    """Declares tasks, with the types of what it decorates kept."""

    def __init__(self, app: App, options: Mapping[str, Any]) -> None:
        self._app = app
        self._options = options

    @overload
    def __call__(self, target: type[Task[Any, R]]) -> BoundTask[..., R]: ...

    @overload
    def __call__(
        self, target: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> BoundTask[P, R]: ...

    @overload
    def __call__(self, target: Callable[Concatenate[Context, P], R]) -> BoundTask[P, R]: ...

    @overload
    def __call__(self, target: Callable[P, Coroutine[Any, Any, R]]) -> BoundTask[P, R]: ...

    @overload
    def __call__(self, target: Callable[P, R]) -> BoundTask[P, R]: ...

    def __call__(self, target: Callable[..., Any]) -> BoundTask[Any, Any]:
        return self._app._declare(target, self._options)


class App:
    """Tasks and the stores their jobs live in.

    ``App()`` keeps jobs in memory, or where ``TIDEMILL_STORE`` says; ``App("sqlite:///jobs.db")`` in a file;
    ``App("postgresql://…")`` in a database. ``stores={"default": …, "jobs": …, "archive": …}`` names several.

    >>> app = App("memory://")
    >>> @app.task
    ... def double(number: int) -> int:
    ...     return 2 * number
    >>> job = double.enqueue(number=21)
    >>> app.testing().drain().processed
    1
    >>> job.result()
    42
    >>> app.close()
    """

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        stores: Mapping[str, str | Store] | None = None,
        tenant: str = DEFAULT_TENANT,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        unknown = sorted(set(settings) - set(_SETTINGS))
        if unknown:
            raise BadSettings(
                f"there is no setting {unknown[0]!r}; there are {', '.join(_SETTINGS)}", setting=unknown[0]
            )
        if store is not None and stores is not None:
            raise BadSettings("give store or stores, not both")
        check_name("tenant", tenant)
        self.clock = clock or SystemClock()
        given = stores or {
            "default": store if store is not None else os.environ.get("TIDEMILL_STORE") or "memory://"
        }
        self._urls = {name: where if isinstance(where, str) else None for name, where in given.items()}
        self.migrates = migrate = bool(settings.get("migrate", False))
        limits = PayloadLimits(
            **{name: settings[f"{name}_limit"] for name in ("args", "result") if f"{name}_limit" in settings}
        )
        rules = read_app_limits(settings.get("limits"))
        policies = read_policies(settings.get("archive", DEFAULT_POLICIES))
        self._client = Client(
            self._opened(given, migrate=migrate),
            clock=self.clock,
            tenant=tenant,
            limits=limits,
            rules=rules,
            policies=policies,
        )
        self.jobs = Jobs(self._client)
        self.archive = Archive(self._client)
        self.definitions = Definitions(self._client)
        self.schedules = Schedules(self._client)
        self.stats = Operations(self._client)
        self.control = Control(self._client)
        self.keys = Keys(self._client)
        self.audit = Audit(self._client)
        self.limits = Limits(self._client)
        self._declarations = Declarations(self._client, self.schedules)
        self._name: str | None = settings.get("name")

    def _opened(self, given: Mapping[str, str | Store], *, migrate: bool) -> dict[str, Store]:
        """All stores, or none: where one cannot be opened, those that were opened before it here are closed."""
        with ExitStack() as undo:
            found: dict[str, Store] = {}
            for name, where in given.items():
                if isinstance(where, Store):
                    found[name] = where
                else:
                    found[name] = open_store(where, clock=self.clock, migrate=migrate)
                    undo.callback(found[name].close)
            undo.pop_all()
        return found

    @property
    def store(self) -> Store:
        """Where jobs go unless a call says otherwise."""
        return self._client.store(None)

    def store_url(self, name: str | None = None) -> str | None:
        """The URL a store was opened by, with its password; None if it was given as an object."""
        return self._urls[name or ("jobs" if "jobs" in self._urls else "default")]

    @property
    def registry(self) -> Registry:
        """The tasks this app knows."""
        return self._client.registry

    @property
    def events(self) -> Events:
        """What happens to jobs in this process; subscribe here."""
        return self._client.events

    # Tasks -----------------------------------------------------------------------------------------------------------

    @overload
    def task(self, target: type[Task[Any, R]], /) -> BoundTask[..., R]: ...

    @overload
    def task(
        self, target: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> BoundTask[P, R]: ...

    @overload
    def task(self, target: Callable[Concatenate[Context, P], R], /) -> BoundTask[P, R]: ...

    @overload
    def task(self, target: Callable[P, Coroutine[Any, Any, R]], /) -> BoundTask[P, R]: ...

    @overload
    def task(self, target: Callable[P, R], /) -> BoundTask[P, R]: ...

    @overload
    def task(self, target: None = None, /, **options: Any) -> _TaskDecorator: ...

    def task(self, target: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Declare a function, a coroutine function or a class as a task; alone or with options."""
        if target is None:
            return _TaskDecorator(self, options)
        return self._declare(target, options)

    def _declare(self, target: Callable[..., Any], options: Mapping[str, Any]) -> BoundTask[Any, Any]:
        name = options.get("name") or default_name(target)
        declared = declare(target, read_options(name, options))
        self.registry.add(declared)
        return BoundTask(self._client, declared)

    def recipe(self, **options: Unpack[CallKeywords]) -> Recipe:
        """A profile of call options: ``recipe(task).enqueue(…)``; per-call options win."""
        return Recipe(options)

    def tenant(self, name: str) -> AbstractContextManager[None]:
        """Everything inside the block is done for this tenant."""
        check_name("tenant", name)
        return tenant_scope(name)

    def middleware(self, middleware: Middleware) -> Middleware:
        """Put this around every enqueue and every execution; the first one added is outermost."""
        self._client.middleware.append(middleware)
        return middleware

    # Schedules -------------------------------------------------------------------------------------------------------

    def schedule(
        self, task: BoundTask[Any, Any] | str, trigger: Trigger | str, key: str | None = None, **said: Any
    ) -> None:
        """Declare a schedule in code: ``app.schedule(cleanup, Daily("02:00"), key="nightly", timezone="Europe/Berlin")``.

        It takes what ``app.schedules.add`` takes, and is checked at once. It is stored when a worker starts, under ``key`` or
        the task's name; the stored one follows the code.
        """
        self._declarations.add(
            task, trigger, key if key is not None else str(getattr(task, "name", task)), **said
        )

    def scheduled(
        self, trigger: Trigger | str, key: str | None = None, **said: Any
    ) -> Callable[[Any], BoundTask[Any, Any]]:
        """Declare a task (or take one that is) and a schedule of it: ``@app.scheduled(Cron("0 2 * * *"))``."""

        def decorate(target: Any) -> BoundTask[Any, Any]:
            task = target if isinstance(target, BoundTask) else self._declare(target, {})
            self.schedule(task, trigger, key, **said)
            return task

        return decorate

    @property
    def name(self) -> str | None:
        """What tells this app from others in the same store: its ``name``, or where it can be imported from."""
        from tidemill.engine.locate import whereabouts

        return self._name or whereabouts(self)

    def declare_limits(self) -> None:
        """Write the limits of this app and its tasks into the store; done by itself when a worker starts."""
        self._client.declare_limits()

    def _prepare(self) -> None:
        self.declare_limits()
        self.reconcile()

    def reconcile(self) -> Reconciled:
        """Bring the stored schedules in line with those declared here; done by itself when a worker starts."""
        return self._declarations.reconcile(self.name)

    # Work ------------------------------------------------------------------------------------------------------------

    def worker(
        self, queues: Sequence[str] | str | None = None, concurrency: int | None = None, **settings: Any
    ) -> EmbeddedWorker:
        """A worker inside this process: ``with app.worker():`` or ``async with app.worker():``.

        ``threads``, ``children``, ``grace`` and the other settings of a worker may be given as well; durations in seconds.
        """
        from tidemill.engine.locate import whereabouts
        from tidemill.engine.settings import read_settings
        from tidemill.engine.worker import EmbeddedWorker

        return EmbeddedWorker(
            self.store,
            self.registry,
            self.clock,
            read_settings({"queues": queues, "concurrency": concurrency, **settings}),
            events=self.events,
            middleware=self._client.middleware,
            app_path=whereabouts(self),
            prepare=self._prepare,
        )

    def tick(self, budget: float = 25.0, **settings: Any) -> Tick:
        """Process what is due for at most ``budget`` seconds, and return; for hosts that run on a timer."""
        return self.worker(**settings).tick(budget)

    def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        *,
        announce: Callable[[Any], object] = lambda _: None,
        sock: socket | None = None,
        token: str | None = None,
        **settings: Any,
    ) -> None:
        """Serve the HTTP API and the dashboard in this process until told to stop; ``settings`` are those of ``tidemill.rest.ApiSettings``.

        Without a living key it is served on this machine only; ``announce`` is called with where, and with the token that
        opens it. ``sock`` already listens on ``host``; ``token`` is to be that token, where others know it already.
        """
        from tidemill.dashboard import create_site
        from tidemill.rest.server import serve
        from tidemill.rest.settings import ApiSettings

        serve(
            self,
            host=host,
            port=port,
            settings=ApiSettings(**settings),
            announce=announce,
            sock=sock,
            token=token,
            make=lambda app, chosen, opens: create_site(app, settings=chosen, token=opens),
        )

    # Life ------------------------------------------------------------------------------------------------------------

    def testing(self) -> Testing:
        """Run this app's jobs in process, on a clock that can be moved; for tests."""
        return Testing(
            self.store,
            self.registry,
            self.clock,
            events=self.events,
            middleware=self._client.middleware,
            prepare=lambda: self._declarations.reconcile_changes(self.name),
        )

    def close(self) -> None:
        """Let go of every thread, connection and file."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
