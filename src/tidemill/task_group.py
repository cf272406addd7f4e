"""Tasks declared without an app, which apps include later."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack
from weakref import WeakSet

from tidemill.client.core import Client, client_of
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.client.schedules.schedule import ScheduleKeywords
from tidemill.decorators import TaskDeclarer
from tidemill.domain.bounds import check_name
from tidemill.domain.triggers.base import Trigger
from tidemill.errors import BadSettings, UsageError
from tidemill.tasks.options import TaskKeywords, read_options
from tidemill.tasks.task import Declared, declare, default_name

if TYPE_CHECKING:
    from tidemill.app import App


class GroupSchedule(NamedTuple):
    """A schedule that a group declares; the app that includes the group validates it."""

    task: BoundTask[Any, Any, Any] | str
    trigger: Trigger | str
    key: str | None
    options: ScheduleKeywords


class TaskGroup(TaskDeclarer):
    """Tasks and schedules of a module that does not know its app; ``app.include(group)`` adds them.

    ``prefix`` becomes the first part of every task's name, and ``options`` are the defaults of every task.

    >>> from tidemill import App
    >>> mail = TaskGroup("mail", queue="mail")
    >>> @mail.task
    ... def send(to: str) -> str:
    ...     return f"sent to {to}"
    >>> app = App("memory://")
    >>> app.include(mail)
    >>> send.enqueue(to="ada").task
    'mail.send'
    >>> app.close()
    """

    def __init__(self, prefix: str | None = None, **options: Unpack[TaskKeywords]) -> None:
        if prefix is not None:
            check_name("task", prefix)
        for name in ("name", "aliases"):
            if name in options:
                raise BadSettings(f"{name} belongs to one task, not to a group of tasks", option=name)
        # Validate the defaults here, where they are written.
        read_options(prefix or "group", options)
        self._prefix, self._options = prefix, options
        self._apps: WeakSet[App] = WeakSet()
        self._choose: Callable[[], App | None] | None = None
        self.declared: list[Declared] = []
        self.schedules: list[GroupSchedule] = []

    def _declare(self, target: Callable[..., Any], options: TaskKeywords) -> BoundTask[Any, Any]:
        name = options.get("name") or default_name(target)
        if self._prefix is not None:
            name = f"{self._prefix}.{name}"
        merged: TaskKeywords = {**self._options, **options, "name": name}
        declared = declare(target, read_options(name, merged))
        self.declared.append(declared)
        self._include_again()
        return BoundTask(self, declared)

    def schedule(
        self,
        task: BoundTask[Any, Any, Any] | str,
        trigger: Trigger | str,
        key: str | None = None,
        **options: Unpack[ScheduleKeywords],
    ) -> None:
        """Declare a schedule for every app that includes this group: ``group.schedule(cleanup, Daily("02:00"))``."""
        self.schedules.append(GroupSchedule(task, trigger, key, options))
        self._include_again()

    def _include_again(self) -> None:
        for app in list(self._apps):
            app.include(self)

    def attach(self, app: App) -> None:
        """Remember an app that includes this group; ``app.include`` calls it."""
        self._apps.add(app)

    def choose_by(self, choose: Callable[[], App | None]) -> None:
        """Let a function choose the app of an enqueue, for frameworks with a current application."""
        self._choose = choose

    def client_for(self, task: str) -> Client:
        """Return the client that enqueues a task of this group."""
        app = self._choose() if self._choose is not None else None
        if app is not None:
            return client_of(app)
        clients = [client_of(app) for app in list(self._apps)]
        running = [client for client in clients if not client.is_closed]
        if len(running) == 1:
            return running[0]
        if running:
            raise UsageError(
                f"{len(running)} apps include task {task!r}; name one: app.bound_task({task!r}).enqueue(…)",
                task=task,
            )
        raise UsageError(
            f"the app that includes task {task!r} is closed"
            if clients
            else f"no app includes task {task!r}; call app.include(…) with its group or module first",
            task=task,
        )


class _SingleTasks(TaskDeclarer):
    """Declares every task in a group of its own."""

    def _declare(self, target: Callable[..., Any], options: TaskKeywords) -> BoundTask[Any, Any]:
        return TaskGroup()._declare(target, options)

    def schedule(self, *_: Any, **__: Any) -> None:
        raise UsageError("a schedule needs an app or a TaskGroup")


task = _SingleTasks().task


def groups_in(source: TaskGroup | BoundTask[Any, Any, Any] | ModuleType | str) -> Iterator[TaskGroup]:
    """Return the groups of a source of tasks; raise an error if it has none."""
    if isinstance(source, TaskGroup):
        yield source
    elif isinstance(source, BoundTask):
        if not isinstance(source.home, TaskGroup):
            raise UsageError(f"task {source.name!r} already belongs to an app", task=source.name)
        yield source.home
    elif isinstance(source, ModuleType | str):
        module = importlib.import_module(source) if isinstance(source, str) else source
        groups = module_groups(module)
        if not groups:
            raise UsageError(f"module {module.__name__!r} has no TaskGroup and declares no task with @task")
        yield from groups
    else:
        raise UsageError(f"app.include takes a TaskGroup, a task or a module; got a {type(source).__name__}")


def module_groups(module: ModuleType) -> list[TaskGroup]:
    """Return the groups in the namespace of a module, and those of the tasks that it declares with ``@task``."""
    groups: dict[TaskGroup, None] = {}
    for value in list(vars(module).values()):
        if isinstance(value, TaskGroup):
            groups[value] = None
        elif (
            isinstance(value, BoundTask)
            and value.__module__ == module.__name__
            and isinstance(group := value.home, TaskGroup)
        ):
            groups[group] = None
    return list(groups)
