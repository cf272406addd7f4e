"""``App``: the user's entry point to stores, tasks, jobs and events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload
from weakref import WeakSet

from tidemill.app_flows import FlowApp
from tidemill.app_leases import LeaseApp
from tidemill.app_notifications import NotificationApp
from tidemill.app_settings import (
    RESULT_SETTINGS,
    AppKeywords,
    check_settings,
    given_stores,
    open_standbys,
    open_stores,
    read_app_settings,
    read_blobs,
    read_environment,
    read_result_options,
    urls_of,
    with_result_options,
)
from tidemill.app_stores import StoresApp
from tidemill.app_tasks import KnownTasks, NamedTaskApp
from tidemill.archive.duty import RetentionDuty
from tidemill.archive.objects import split_places
from tidemill.client.access import Audit
from tidemill.client.archive import Archive
from tidemill.client.control import Control
from tidemill.client.core import Client
from tidemill.client.enqueue.bound_task import BoundTask, Recipe
from tidemill.client.enqueue.options import CallKeywords
from tidemill.client.error_groups import ErrorGroups
from tidemill.client.jobs.api import Jobs
from tidemill.client.limits import Limits
from tidemill.client.own_connection import OwnConnections
from tidemill.client.schedules.api import Schedules
from tidemill.client.schedules.declarations import Declarations, Reconciled
from tidemill.client.schedules.definitions import Definitions
from tidemill.client.schedules.schedule import ScheduleKeywords
from tidemill.client.secrets import Secrets
from tidemill.client.sessions import access_apis
from tidemill.client.stats.api import StatsApi
from tidemill.clock import Clock, SystemClock
from tidemill.configuration import default_store, value_of
from tidemill.decorators import TaskDeclarer
from tidemill.domain.bounds import check_name
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.job import DEFAULT_TENANT
from tidemill.domain.releases import Deployment, read_release
from tidemill.errors import UsageError
from tidemill.messages import MessageSender
from tidemill.schedule_triggers import Trigger
from tidemill.stores.base import Store
from tidemill.task_group import TaskGroup, groups_in
from tidemill.tasks.ambient import tenant_scope
from tidemill.tasks.events import Events
from tidemill.tasks.hooks import EnqueueManager, ExecuteManager, Hooks, Only
from tidemill.tasks.middleware import Middleware
from tidemill.tasks.options import TaskKeywords, read_options
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import Declared, declare, default_name, module_name

if TYPE_CHECKING:
    from socket import socket

    from tidemill.engine.embedded_worker import EmbeddedWorker, Tick
    from tidemill.engine.worker_settings import WorkerSettings
    from tidemill.testing.runner import Testing


class App(StoresApp, FlowApp, NotificationApp, TaskDeclarer, NamedTaskApp, MessageSender, LeaseApp):
    """Tasks and the stores that hold their jobs.

    ``App()`` keeps jobs in the store that ``TIDEMILL_STORE``, ``TIDEMILL_STORE_FILE``, ``store`` in ``[tool.tidemill]`` of
    pyproject.toml or ``DATABASE_URL`` names, else in memory. ``App("sqlite:///jobs.db")`` uses a file, ``App("postgresql://…")`` a
    database. ``stores={"reports": …, "archive": …}`` names further stores.
    The archive may also be a directory or a bucket: ``"file:///srv/archive"``, ``"s3://bucket/prefix"``.
    ``store_for`` is a function from a tenant to the name of its store; ``reads="standby"`` reads lists from a standby.
    ``shards={"eu": …, "us": …}`` divides the tenants among databases; ``place`` chooses the shard of a new tenant.

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
        **settings: Unpack[AppKeywords],
    ) -> None:
        check_settings(settings)
        check_name("tenant", tenant)
        self.clock = clock or SystemClock()
        self._settings = settings
        chosen = given_stores(store, stores, settings)
        places, given = split_places({"default": default_store()} if chosen is None else chosen)
        configured = read_app_settings(settings, given, places)
        self._result_options, self._blobs = read_result_options(settings), read_blobs(settings)
        self.migrates = bool(settings.get("migrate", False))
        self._client = Client(
            open_stores(given, self.clock, migrate=self.migrates, blobs=self._blobs),
            clock=self.clock,
            tenant=tenant,
            places=places,
            **configured,
        )
        self.hooks.set_lifespan(settings.get("lifespan"), self)
        self._urls = urls_of(given)
        self._root: App | None = None  # the app that ``at_store`` was called on
        self._bind()
        self._bind_keys()
        self._declarations = Declarations(self._client, self.schedules)
        self._read_names()
        self.deployed_at: datetime | None = None
        self._made_at = self.clock.monotonic()
        self._workers: WeakSet[EmbeddedWorker] = WeakSet()
        self._included: dict[int, tuple[Declared, Declared]] = {}  # tasks of groups, with this app's defaults

    def _read_names(self) -> None:
        self._name: str | None = self._settings.get("name")
        self.release = read_release(self._settings.get("release", value_of("TIDEMILL_RELEASE")))
        self.registry.environment = self.environment = read_environment(self._settings)

    def _bind_keys(self) -> None:
        self.keys, self.access, self.sessions = access_apis(self._client)
        self._client.read_from(open_standbys(self._settings, self._urls, self.clock))

    def configure(
        self,
        store: str | Store | None = None,
        *,
        stores: Mapping[str, str | Store] | None = None,
        tenant: str | None = None,
        **settings: Unpack[AppKeywords],
    ) -> None:
        """Change the stores and settings of an app that a module has created: ``app.configure("postgresql://…")``.

        Call it while the program starts, before a worker runs and before an API or dashboard is created. Settings that
        are not given stay unchanged. If stores are given, the previous ones are closed.
        """
        check_settings(settings)
        if tenant is not None:
            check_name("tenant", tenant)
        if self._client.is_served or any(worker.is_running for worker in self._workers):
            raise UsageError(
                "this app is in use: a worker runs, or an API or dashboard was created; call app.configure before"
            )
        late = [name for name in RESULT_SETTINGS if name in settings]
        if late and len(self.registry):
            raise UsageError(
                f"tasks have their {late[0]} already; configure it before, or set it on the tasks"
            )
        merged: AppKeywords = {**self._settings, **settings}
        chosen = given_stores(store, stores, merged if store or stores else {})
        places, given = (self._client.places, self._client.stores) if chosen is None else split_places(chosen)
        configured = read_app_settings(merged, given, places)
        migrates = bool(merged.get("migrate", False))
        result_options, blobs = read_result_options(merged), read_blobs(merged)
        opened = None if chosen is None else open_stores(given, self.clock, migrate=migrates, blobs=blobs)
        self._client.configure(opened, tenant=tenant, places=places, **configured)
        self.hooks.set_lifespan(merged.get("lifespan"), self)
        self._settings, self.migrates = merged, migrates
        self._result_options, self._blobs = result_options, blobs
        for opened_store in self.stores.values():
            opened_store.blob_url = blobs
        self._bind_notifications()
        self._read_names()
        self._urls = self._urls if chosen is None else urls_of(given)
        self._bind_keys()
        if chosen is not None:
            self.deployed_at = None
            self._declarations.restart()

    def _bind(self) -> None:
        """Create the APIs of the store that the client addresses."""
        self.jobs = Jobs(self._client)
        self.archive, self.secrets = Archive(self._client, self.jobs), Secrets(self._client)
        self.definitions, self.schedules = Definitions(self._client), Schedules(self._client)
        self.stats, self.control = StatsApi(self._client), Control(self._client)
        self.audit, self.limits = Audit(self._client), Limits(self._client)
        self.known_tasks = KnownTasks(self._client)
        self.errors = ErrorGroups(self._client, self.jobs)
        self._bind_shards()
        self._bind_notifications()

    @property
    def registry(self) -> Registry:
        """The tasks of this app."""
        return self._client.registry

    @property
    def events(self) -> Events:
        """The events of this process, for subscribing."""
        return self._client.events

    def at_store(self, name: str) -> Self:
        """Return this app with another store: all calls of the returned object address it.

        Tasks, hooks, events and API keys are shared. It is closed with this app.
        """
        other = copy(self)
        other._root = self._root or self
        other._client = self._client.at(name)
        other.deployed_at = None
        other._bind()
        other._declarations = self._declarations.at(other._client, other.schedules)
        return other

    @property
    def hooks(self) -> Hooks:
        """The middleware and the context managers of this app, for workers."""
        return self._client.hooks

    @property
    def connections(self) -> OwnConnections:
        """The completion of jobs on users' own connections, for workers."""
        return self._client.connections

    # Tasks -----------------------------------------------------------------------------------------------------------

    def _declare(self, target: Callable[..., Any], options: TaskKeywords) -> BoundTask[Any, Any]:
        name, former = options.get("name"), None
        if name is None:
            name = default_name(target)
            if self._settings.get("task_names") == "module":
                name, former = f"{module_name(target)}.{name}", name
        declared = declare(target, read_options(name, {**self._result_options, **options}))
        declared = declared if former is None else replace(declared, former_name=former)
        self._add(declared)
        return BoundTask(self._client, declared)

    def _with_defaults(self, declared: Declared) -> Declared:
        """Return a task of a group with this app's settings of results, where the group has none of its own."""
        known = self._included.get(id(declared))
        if known is None:
            adapted = with_result_options(declared, self._result_options)
            known = self._included[id(declared)] = (declared, adapted)
        return known[1]

    def _add(self, declared: Declared) -> None:
        if declared.options.store is not None:
            self._client.placement.live_name(declared.options.store)
        self._client.hooks.check(declared)
        self._check_declared(declared)
        self.registry.add(declared)

    def include(self, *sources: TaskGroup | BoundTask[Any, Any, Any] | ModuleType | str) -> None:
        """Add tasks that were declared without an app: ``app.include(mail_tasks)``.

        A source is a ``TaskGroup``, a task that ``@task`` declared, or a module (or its import name) with either of
        them. Tasks that a group declares later are added too. Including a source twice has no effect.
        """
        for source in sources:
            for group in groups_in(source):
                for declared in group.declared:
                    self._add(self._with_defaults(declared))
                for task, trigger, key, options in group.schedules:
                    self.schedule(task, trigger, key, **options)
                group.attach(self)

    def recipe(self, **options: Unpack[CallKeywords]) -> Recipe:
        """Return a reusable set of call options: ``recipe(task).enqueue(…)``. Options of a call take precedence."""
        return Recipe(options)

    def tenant(self, name: str) -> AbstractContextManager[None]:
        """Run everything inside the block for this tenant."""
        check_name("tenant", name)
        return tenant_scope(name)

    @overload
    def middleware(self, middleware: Middleware, /, *, only: Only | None = None) -> Middleware: ...

    @overload
    def middleware(
        self, middleware: None = None, /, *, only: Only | None = None
    ) -> Callable[[Middleware], Middleware]: ...

    def middleware(self, middleware: Middleware | None = None, /, *, only: Only | None = None) -> Any:
        """Call this function around every enqueue and every execution, or only around one of them.

        It may change or refuse jobs; the first one added is outermost. A plain function cannot wrap the execution of a
        coroutine. It is therefore refused for an app with such a task unless ``only="enqueue"``.
        """

        def add(given: Middleware) -> Middleware:
            self._client.hooks.add_middleware(given, only, iter(self.registry))
            return given

        return add if middleware is None else add(middleware)

    def around(self, *, execute: ExecuteManager | None = None, enqueue: EnqueueManager | None = None) -> None:
        """Enter a context manager around every execution, every enqueue, or both: ``app.around(execute=span)``.

        ``execute(job)`` returns the context manager of one execution. It is entered where the task's code runs: in the
        same thread, coroutine or child process, with the same context variables. Its ``__exit__`` receives the
        exception that the task raises. Both kinds of context managers wrap functions and coroutines; an async one around a
        function costs more, because an event loop of its own enters and exits it.

        ``enqueue(step)`` returns the context manager of one enqueue; ``step.headers`` are added to each of its jobs.
        """
        self._client.hooks.add_managers(execute, enqueue)

    # Schedules -------------------------------------------------------------------------------------------------------

    def schedule(
        self,
        task: BoundTask[Any, Any, Any] | str,
        trigger: Trigger | str,
        key: str | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> None:
        """Declare a schedule in code: ``app.schedule(cleanup, Daily("02:00"), key="nightly")``.

        It takes the same arguments as ``app.schedules.add`` and validates them at once. A worker stores the schedule
        when it starts, under ``key`` or the task's name, and updates the stored one when the code changes.
        """
        self._declarations.add(
            task, trigger, key if key is not None else str(getattr(task, "name", task)), **options
        )

    @property
    def name(self) -> str | None:
        """The name that identifies this app in a shared store: its ``name`` setting or its import path."""
        from tidemill.engine.app_lookup import import_path

        return self._name or import_path(self._root or self)

    def declare_limits(self) -> None:
        """Write the limits of this app and its tasks into the stores. A worker does this when it starts."""
        if others := self._each_store():
            for other in others:
                other.declare_limits()
            return
        self._declarations.declare_limits(self.name, self.deployment)

    def _each_store(self) -> list[Self]:
        """Return this app for each live store; nothing if there is only one to address."""
        placement = self._client.placement
        if placement.is_single or placement.fixed is not None:
            return []
        return [self.at_store(name) for name in placement.live]

    def _prepare(self) -> None:
        self.declare_limits()
        self.reconcile()

    def reconcile(self, *, force: bool = False) -> Reconciled:
        """Update the stored schedules to those declared here. A worker does this when it starts.

        Nothing changes while a newer deployment is alive, except with ``force``. The result covers all stores.
        """
        if others := self._each_store():
            return Reconciled.combined([other.reconcile(force=force) for other in others])
        done = self._declarations.reconcile(self.name, self.deployment(), force=force)
        if self._client.declares_limits:
            self.declare_limits()  # the deployment record now prevents older deployments from changing them
        return done

    def confirm(self) -> None:
        """Record in the stores that this deployment is alive, and its tasks. A running worker does this every minute."""
        if others := self._each_store():
            for other in others:
                other.confirm()
            return
        deployment = self.deployment()
        self._declarations.confirm(self.name, deployment)
        self.known_tasks.declare(deployment.deployed_at)

    def deployment(self) -> Deployment:
        """Return the release of this code and its start by the store's clock.

        Under ``tidemill worker`` that is the start of the command or its last reload, else the creation of the app.
        """
        if self.deployed_at is None:
            age = timedelta(seconds=self.clock.monotonic() - self._made_at)
            self.deployed_at = (self._client.pin or self.store.now()) - age
        return Deployment(self.deployed_at, self.release)

    # Work ------------------------------------------------------------------------------------------------------------

    def worker(
        self,
        queues: Sequence[str] | str | None = None,
        concurrency: int | None = None,
        *,
        stores: Sequence[str] | str | None = None,
        **settings: Any,
    ) -> EmbeddedWorker:
        """Return a worker that runs inside this process: ``with app.worker():`` or ``async with app.worker():``.

        ``threads``, ``children``, ``grace`` and the other worker settings are accepted as well. If the app has several
        stores, ``stores`` names those to serve, by default all live ones, and each gets an equal part of the slots.
        """
        from tidemill.engine.store_shares import divided, read_embedded_stores, served_stores
        from tidemill.engine.worker_group import WorkerGroup
        from tidemill.engine.worker_settings import check_embedded, read_settings

        chosen = read_settings({"queues": queues, "concurrency": concurrency, **settings})
        check_embedded(chosen)
        fixed = self._client.placement.fixed
        names = served_stores(
            self.live_stores if fixed is None else [fixed], self.stores, read_embedded_stores(stores)
        )
        if self._client.placement.is_single:
            return self._embedded_worker(chosen)
        parts = divided(chosen, len(names))
        make = {
            name: partial(self.at_store(name)._embedded_worker, part)
            for name, part in zip(names, parts, strict=True)
        }
        return make[names[0]]() if len(names) == 1 else WorkerGroup(make)

    def _embedded_worker(self, settings: WorkerSettings) -> EmbeddedWorker:
        from tidemill.engine.app_lookup import whereabouts
        from tidemill.engine.embedded_worker import EmbeddedWorker

        self._check_all_channels()
        worker = EmbeddedWorker(
            self.store,
            self.registry,
            self.clock,
            settings,
            events=self.events,
            hooks=self.hooks,
            app_path=whereabouts(self._root or self),
            connections=self.connections,
            prepare=self._prepare,
            confirm=self.confirm,
            retention=self.retention_duty(),
            background=self.background_thread,
            store_name=self._client.placement.fixed,
        )
        self._workers.add(worker)
        return worker

    def retention_duty(self) -> RetentionDuty | None:
        """Return the retention that workers perform.

        None for a memory store without ``retention=``: its workers delete ended jobs after 15 minutes to an hour.
        """
        if self.store.url.startswith("memory") and "retention" not in self._settings:
            return None
        return self.archive.duty()

    def tick(self, budget: Duration = 25.0, **settings: Any) -> Tick:
        """Run due jobs for at most ``budget``, then return; for hosts that run on a timer."""
        return self.worker(**settings).tick(read_duration("budget", budget).total_seconds())

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
        """Serve the HTTP API and the dashboard in this process until it is stopped.

        ``settings`` are those of ``tidemill.rest.ApiSettings``. Without an active API key, only the local machine is
        served, and clients need an access token. ``announce`` is called with the address and that token. ``token`` sets
        it, for cases in which other processes already have it. ``sock`` is a socket that already listens on ``host``.
        """
        from tidemill.dashboard import create_site
        from tidemill.web.server import serve
        from tidemill.web.settings import ApiSettings

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

    # Lifecycle -------------------------------------------------------------------------------------------------------

    def testing(self) -> Testing:
        """Return a runner of this app's jobs for tests: in process, on a clock that can be advanced.

        It runs the jobs of the current store: ``app.at_store("reports").testing()`` runs those of another one.
        """
        if not self._client.placement.is_single and self._client.placement.fixed is None:
            return self.at_store(self._client.placement.concrete(self.store_name)).testing()
        from tidemill.testing.runner import Testing

        return Testing(
            self.store,
            self.registry,
            self.clock,
            events=self.events,
            hooks=self.hooks,
            connections=self.connections,
            prepare=lambda: self._declarations.reconcile_changes(lambda: self.name, self.deployment),
            store_name=self._client.placement.fixed,
        )

    @contextmanager
    def override(self, store: str | Store, *, clock: Clock | None = None) -> Iterator[Self]:
        """Use another store and clock inside the block: ``with app.override("memory://", clock=ManualClock()):``.

        For tests of an app that a module declares. All its tasks enqueue into this store, also from other threads;
        every name in ``stores`` refers to it. Schedules fire as if they had just been declared. Afterwards the previous
        state is restored. A store that is given as a URL is opened for the block and closed afterwards.
        """
        kept = {name: getattr(self, name) for name in ("clock", "_urls", "deployed_at", "_made_at")}
        with ExitStack() as stack:
            stack.callback(vars(self).update, kept)
            self.clock = clock or self.clock
            self._urls = dict.fromkeys(self._urls, store if isinstance(store, str) else None)
            self.deployed_at, self._made_at = None, self.clock.monotonic()
            # Large values stay in the store, so that a test leaves no objects behind.
            target = open_stores({"default": store}, self.clock, migrate=self.migrates, blobs=None)["default"]
            if isinstance(store, str):
                stack.callback(target.close)
            stack.enter_context(self._client.override(dict.fromkeys(self._urls, target), self.clock))
            stack.enter_context(self._declarations.override())
            yield self

    def finalize(self) -> None:
        """Complete the declarations of this app; commands call it when they have imported the app."""

    def close(self) -> None:
        """Close all threads, connections and files."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
