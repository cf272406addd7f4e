"""``Celery`` apps and shared tasks on a Tidemill app."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from tidemill.app import App
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.configuration import value_of
from tidemill.contrib.celery import signals
from tidemill.contrib.celery.callbacks import MAP, STARMAP
from tidemill.contrib.celery.canvas import CelerySignature, part_to_data, parts_of
from tidemill.contrib.celery.configuration import Configuration
from tidemill.contrib.celery.exceptions import ImproperlyConfigured, NotRegistered
from tidemill.contrib.celery.payload import to_json
from tidemill.contrib.celery.request import IGNORE, SOFT_LIMIT, TASK_ID, running
from tidemill.contrib.celery.result import AsyncResult
from tidemill.contrib.celery.schedules import trigger_of
from tidemill.contrib.celery.task import CeleryTask
from tidemill.domain.bounds import MOST_ATTEMPTS
from tidemill.domain.durations import read_duration
from tidemill.domain.retry import Fixed
from tidemill.engine.context import Context
from tidemill.errors import UsageError
from tidemill.stores.base import Store
from tidemill.tasks.limits import Rate
from tidemill.tasks.options import TaskKeywords

_SCHEMES = ("memory:", "sqlite:", "postgresql:", "postgresql+", "postgres:")
_NOT_NEEDED = frozenset(
    {
        "add_to_parent",
        "compression",
        "connection",
        "delivery_mode",
        "producer",
        "retry",
        "retry_policy",
        "serializer",
    }
)
"""Options of a call that concern a broker's connection."""

_apps: list[Celery] = []
_shared: list[CeleryTask] = []


class Celery(App):
    """A Celery app whose calls are jobs of a Tidemill store.

    The store is ``store=``, the environment variable ``TIDEMILL_STORE``, or a broker URL that is a store's. It is also
    a Tidemill ``App``: ``tidemill worker shop:app`` runs its tasks.
    """

    def __init__(
        self,
        main: str | None = None,
        broker: str | None = None,
        backend: str | None = None,
        include: Sequence[str] = (),
        *,
        store: str | Store | None = None,
        config_source: Any = None,
        set_as_current: bool = True,
        task_cls: type[CeleryTask] | None = None,
        **settings: Any,
    ) -> None:
        self.main = main
        self.conf = Configuration()
        self.conf.update(include=tuple(include))
        self.Task: type[CeleryTask] = task_cls or type("Task", (CeleryTask,), {"_app": self})
        self.tasks: dict[str, CeleryTask] = {}
        self.on_after_configure = signals.CelerySignal("on_after_configure")
        self.on_after_finalize = signals.CelerySignal("on_after_finalize")
        self._undeclared: list[CeleryTask] = []
        self._packages: list[tuple[Callable[[], Sequence[str]], str]] = []
        self._finalized = False
        if config_source is not None:
            self.config_from_object(config_source)
        super().__init__(
            _store_of(store, broker, settings.pop("url", None)), lifespan=_process_signals, **settings
        )
        # Where Celery has it.
        self.control.revoke = self.revoke  # type: ignore[attr-defined]
        for task in (*built_in_tasks(self), *_shared):
            self._register(task)
        if set_as_current:
            _apps.append(self)

    # Configuration ---------------------------------------------------------------------------------------------------

    def config_from_object(
        self, source: Any, silent: bool = False, namespace: str | None = None, **_: Any
    ) -> None:
        """Take settings from a module, an object, a mapping, or the name of one."""
        try:
            self.conf.read(source, namespace)
        except ImportError:
            if not silent:
                raise

    def autodiscover_tasks(
        self, packages: Any = None, related_name: str = "tasks", force: bool = False
    ) -> None:
        """Import the tasks modules of these packages, or of Django's installed apps, before a worker starts."""
        names = (
            packages if callable(packages) else (lambda: _installed_apps() if packages is None else packages)
        )
        self._packages.append((names, related_name))
        if force:
            self._import_tasks()

    def set_current(self) -> None:
        """Make this the app of shared tasks."""
        _apps.append(self)

    set_default = set_current

    # Declaration -----------------------------------------------------------------------------------------------------

    def task(self, *args: Any, **options: Any) -> Any:
        """Declare a function as a task: ``@app.task`` or ``@app.task(bind=True, max_retries=5)``."""
        if args and callable(args[0]) and len(args) == 1:
            return self._made(args[0], options)
        if args:
            raise TypeError("@app.task takes options by name")
        return lambda function: self._made(function, options)

    def _made(self, function: Callable[..., Any], options: Mapping[str, Any]) -> CeleryTask:
        made = task_of(function, options, self.Task, self.main)
        if made.name in self.tasks:
            return self.tasks[made.name]
        made._app = self
        return self._register(made)

    def register_task(self, task: CeleryTask | type[CeleryTask], **_: Any) -> CeleryTask:
        """Add a task that is a class."""
        made = task() if isinstance(task, type) else task
        if not made.name:
            made.name = f"{type(made).__module__}.{type(made).__name__}"
        made._app = self
        return self._register(made)

    def _register(self, task: CeleryTask) -> CeleryTask:
        self.tasks[task.name] = task
        self._undeclared.append(task)
        return task

    def _declare_tasks(self) -> None:
        """Declare the tasks to Tidemill. Later than their definition, so that all settings are known."""
        while self._undeclared:
            task = self._undeclared.pop(0)
            for name, value in self.conf.annotations(task.name).items():
                setattr(task, name, value)
            self._declare(_function_of(task), _options_of(task, self.conf))

    # Calls -----------------------------------------------------------------------------------------------------------

    def send_task(
        self,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        task_id: str | None = None,
        **options: Any,
    ) -> AsyncResult:
        """Enqueue a call of a task by its name."""
        self._declare_tasks()
        headers: dict[str, Any] = dict(options.pop("headers", None) or {})
        chosen = {**self.conf.route(name), **options}
        body = (list(args or ()), dict(kwargs or {}))
        queue = chosen.get("queue") or self.conf.task_default_queue
        signals.before_task_publish.send(name, body=body, headers=headers, routing_key=queue, exchange="")
        task, more = self._prepared(name, chosen, headers, task_id)
        job = task.enqueue(args=to_json(body[0]), kwargs=to_json(body[1]), **more)
        signals.after_task_publish.send(name, body=body, headers=headers, routing_key=queue, exchange="")
        return AsyncResult(task_id or str(job.id), self, job)

    def _prepared(
        self, name: str, chosen: Mapping[str, Any], headers: Mapping[str, Any], task_id: str | None
    ) -> tuple[BoundTask[..., Any], dict[str, Any]]:
        """Return a task with the options of a call, and the arguments that carry its callbacks."""
        links = {
            kind: [part_to_data(part) for part in parts_of(chosen.get(kind))]
            for kind in ("link", "link_error")
            if chosen.get(kind)
        }
        rest = {option: value for option, value in chosen.items() if option not in ("link", "link_error")}
        call = _call_options(rest, headers)
        if task_id is not None:
            call["reference"] = (TASK_ID, task_id)
        return self._by_name(name).using(**call), {"links": links} if links else {}

    def prepare(
        self, task: CeleryTask, options: Mapping[str, Any]
    ) -> tuple[BoundTask[..., Any], dict[str, Any]]:
        """Return a task for a node of a flow, with the options of its call, and further arguments of the job."""
        self._declare_tasks()
        own = {
            name: getattr(task, name)
            for name in ("queue", "priority", "expires")
            if getattr(task, name) is not None
        }
        chosen = {**self.conf.route(task.name), **own, **options}
        headers = dict(chosen.pop("headers", None) or {})
        return self._prepared(task.name, chosen, headers, chosen.pop("task_id", None))

    def AsyncResult(self, id: str) -> AsyncResult:  # noqa: N802  (Celery's name)
        """Return the result of a call by its id."""
        return AsyncResult(id, self)

    def signature(
        self, name: str, args: Sequence[Any] = (), kwargs: Any = None, **options: Any
    ) -> CelerySignature:
        """Return a signature of a call by the name of its task."""
        if name not in self.tasks:
            raise NotRegistered(name)
        return self.tasks[name].signature(args, kwargs, **options)

    def revoke(self, task_id: str | Sequence[str], terminate: bool = False) -> None:
        """Cancel calls by their ids, as Celery's ``app.control.revoke`` does."""
        for id in [task_id] if isinstance(task_id, str) else task_id:
            self.AsyncResult(id).revoke(terminate=terminate)

    @property
    def current_task(self) -> CeleryTask | None:
        """The task that is running here."""
        current = running.get()
        return None if current is None else current[0]

    # Schedules -------------------------------------------------------------------------------------------------------

    def add_periodic_task(
        self,
        schedule: Any,
        sig: CelerySignature,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> str:
        """Call a signature regularly; return the key of the schedule."""
        call = sig.clone(args, kwargs, **options)
        entry = {"task": sig.task, "schedule": schedule, "args": call.args, "kwargs": call.kwargs}
        return self._schedule_entry(name or repr(call), {**entry, "options": call.options})

    def _schedule_entry(self, key: str, entry: Mapping[str, Any]) -> str:
        options = dict(entry.get("options") or {})
        chosen: dict[str, Any] = {**self.conf.route(entry["task"]), **options}
        extra = {
            name: chosen[name] for name in ("queue", "priority", "expires") if chosen.get(name) is not None
        }
        unknown = sorted(chosen.keys() - {"queue", "priority", "expires"} - _NOT_NEEDED)
        if unknown:
            raise ImproperlyConfigured(f"beat_schedule {key!r}: option {unknown[0]!r} is not supported")
        self._declare_tasks()
        self.schedule(
            entry["task"],
            trigger_of(entry["schedule"]),
            _key(key),
            args={
                "args": to_json(list(entry.get("args") or ())),
                "kwargs": to_json(entry.get("kwargs") or {}),
            },
            timezone=str(self.conf.timezone or "UTC"),
            misfire="once",
            overlap="allow",
            **extra,
        )
        return _key(key)

    # Work ------------------------------------------------------------------------------------------------------------

    def finalize(self, **_: Any) -> None:
        """Import the task modules and declare tasks and schedules. Workers call it before they start."""
        if not self._finalized:
            self._finalized = True
            self._import_tasks()
            self.on_after_configure.send(self, source=self.conf)
            self.on_after_finalize.send(self)
            self._declare_tasks()
            for key, entry in dict(self.conf.beat_schedule).items():
                self._schedule_entry(key, entry)
        self._declare_tasks()

    def _import_tasks(self) -> None:
        for module in (*_names(self.conf.imports), *_names(self.conf.include)):
            importlib.import_module(module)
        for packages, related in self._packages:
            for package in packages():
                name = f"{package}.{related}" if related else package
                importlib.import_module(package)
                if importlib.util.find_spec(name) is not None:
                    importlib.import_module(name)

    def worker(self, *args: Any, **settings: Any) -> Any:
        """Return a worker that runs inside this process."""
        self.finalize()
        return super().worker(*args, **settings)

    def testing(self) -> Any:
        """Return a runner of this app's jobs for tests."""
        self.finalize()
        return super().testing()


def shared_task(*args: Any, **options: Any) -> Any:
    """Declare a task that belongs to every app: ``@shared_task``, or ``@shared_task(bind=True)``."""

    def made(function: Callable[..., Any]) -> CeleryTask:
        task = task_of(function, options, CeleryTask, None)
        _shared.append(task)
        for app in _apps:
            app._register(task)
        return task

    return made(args[0]) if args and callable(args[0]) else made


def default_app() -> Celery:
    """Return the current app: the last one that was created."""
    if not _apps:
        raise UsageError("there is no Celery app; create one: app = Celery('shop')")
    return _apps[-1]


def task_of(
    function: Callable[..., Any], given: Mapping[str, Any], base: type[CeleryTask], main: str | None
) -> CeleryTask:
    """Make the task of a function."""
    options = dict(given)
    base, bind = options.pop("base", None) or base, options.pop("bind", False)
    name = options.pop("name", None) or _name_of(function, main)
    if options.get("serializer", "json") != "json":
        raise ImproperlyConfigured(
            f"task {name}: serializer is {options['serializer']!r}; Tidemill sends JSON only"
        )
    body = {
        "name": name,
        "run": function if bind else staticmethod(function),
        "__doc__": function.__doc__,
        "__module__": function.__module__,
        "__wrapped__": function,
        "abstract": False,
        **options,
    }
    made: CeleryTask = type(function.__name__, (base,), body)()
    return made


def _name_of(function: Callable[..., Any], main: str | None) -> str:
    module = function.__module__
    if module == "__main__" and main:
        module = main
    return f"{module}.{function.__name__}"


def built_in_tasks(app: Celery) -> list[CeleryTask]:
    """Return the tasks that run the calls of ``task.map`` and ``task.starmap``."""

    def call_map(task: str, it: list[Any]) -> list[Any]:
        """Call a task for each item."""
        return [app.tasks[task](item) for item in it]

    def call_starmap(task: str, it: list[Any]) -> list[Any]:
        """Call a task with the arguments of each item."""
        return [app.tasks[task](*item) for item in it]

    return [
        task_of(call_map, {"name": MAP}, CeleryTask, None),
        task_of(call_starmap, {"name": STARMAP}, CeleryTask, None),
    ]


def _function_of(task: CeleryTask) -> Callable[..., Any]:
    """Return the function that Tidemill runs for a task."""

    def call(
        ctx: Context, args: list[Any], kwargs: dict[str, Any], links: dict[str, list[Any]] | None = None
    ) -> Any:
        return task.execute(ctx, args, kwargs, links)

    call.__doc__ = task.__doc__
    return call


def _options_of(task: CeleryTask, conf: Configuration) -> TaskKeywords:
    route = conf.route(task.name)
    priority = task.priority if task.priority is not None else conf.task_default_priority
    options: TaskKeywords = {
        "name": task.name,
        "queue": str(task.queue or route.get("queue") or conf.task_default_queue),
        "priority": int(route.get("priority", priority) or 0),
        # The task itself counts its retries: a call may allow more of them.
        "retry": Fixed(max_attempts=MOST_ATTEMPTS),
        "should_retry": _never,
        "timeout": task.hard_limit,
        # Only a process can be killed at its limit, and only its main thread can be interrupted.
        "isolation": "process" if task.hard_limit or task.soft_limit else "auto",
    }
    if task.rate is not None:
        number, per = task.rate
        options["limits"] = [Rate(number, per=per)]
    return options


def _never(_: Any) -> bool:
    """Celery retries only on request, which ``Retry`` is."""
    return False


def _call_options(chosen: Mapping[str, Any], headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call by Tidemill's names."""
    given = {name: value for name, value in chosen.items() if value is not None and name not in _NOT_NEEDED}
    sent = {name: str(value) for name, value in headers.items()}
    call: dict[str, Any] = {}
    if "countdown" in given:
        call["delay"] = timedelta(seconds=max(0.0, given.pop("countdown")))
    if "eta" in given:
        call["run_after"] = _aware(given.pop("eta"))
    if "expires" in given:
        expires = given.pop("expires")
        call["expires"] = (
            _aware(expires) if isinstance(expires, datetime) else read_duration("expires", expires)
        )
    for name in ("queue", "priority"):
        if name in given:
            call[name] = given.pop(name)
    if "time_limit" in given:
        call["timeout"] = given.pop("time_limit")
    if "soft_time_limit" in given:
        sent[SOFT_LIMIT] = str(given.pop("soft_time_limit"))
    if "ignore_result" in given:
        sent[IGNORE] = str(bool(given.pop("ignore_result")))
    if given:
        name = sorted(given)[0]
        raise UsageError(f"apply_async: option {name!r} is not supported", option=name)
    return {**call, "headers": sent} if sent else call


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _store_of(store: str | Store | None, broker: str | None, url: str | None) -> str | Store | None:
    if store is not None or value_of("TIDEMILL_STORE"):
        return store
    broker = broker or url
    if broker is None or broker.startswith(_SCHEMES):
        return broker
    scheme = broker.partition(":")[0]
    raise ImproperlyConfigured(
        f"Celery(broker='{scheme}:…'): Tidemill needs no broker but a store; set TIDEMILL_STORE=postgresql://… or give store=…"
    )


@contextmanager
def _process_signals(app: Celery) -> Iterator[None]:
    """Send the signals of a worker process."""
    for signal in (signals.worker_init, signals.worker_process_init, signals.worker_ready):
        signal.send(app)
    yield
    for signal in (signals.worker_process_shutdown, signals.worker_shutdown):
        signal.send(app, pid=os.getpid(), exitcode=0)


def _installed_apps() -> Sequence[str]:
    from django.apps import apps

    return [config.name for config in apps.get_app_configs()]


def _names(given: Any) -> Sequence[str]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _key(name: str) -> str:
    """Return a schedule's key for a name of ``beat_schedule``, which may have any characters."""
    return "".join(letter if letter.isalnum() or letter in "-_.:" else "-" for letter in name)[:200].strip(
        "-"
    )
