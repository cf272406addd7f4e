"""Tasks of an app by name: those that it declares, and those that workers of other code have recorded in its store."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.errors import TaskNotFound, TidemillError
from tidemill.tasks.task import Declared, undeclared

if TYPE_CHECKING:
    from datetime import datetime

    from tidemill.client.core import Client
    from tidemill.client.jobs.handle import Job
    from tidemill.domain.task_records import TaskRecord
    from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.client")

FRESH = 60.0
"""Seconds for which the record of a task is cached."""

UNKNOWN_FRESH = 5.0
"""Seconds for which a client remembers that nobody has recorded a task."""


class KnownTasks:
    """The tasks that jobs can be enqueued for by name."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._cached: dict[tuple[Store, str], tuple[float, Declared | None]] = {}
        self._declare_at: dict[Store, float] = {}  # on the monotonic clock

    def get(self, name: str) -> Declared:
        """Return a task of this app, or one that a worker has recorded, or one that takes any arguments."""
        if name in self._client.registry:
            return self._client.registry.get(name)
        return self._recorded(name) or undeclared(name)

    async def aget(self, name: str) -> Declared:
        """Async version of ``get``."""
        if name in self._client.registry or self._fresh(name) is not None:
            return self.get(name)
        declared: Declared = await self._client.in_thread(self.get, name)
        return declared

    def existing(self, name: str) -> Declared:
        """Return a task of this app or one that a worker has recorded. Raise ``TaskNotFound`` for any other."""
        try:
            return self._client.registry.get(name)
        except TaskNotFound:
            if (recorded := self._recorded(name)) is None:
                raise
            return recorded

    def _recorded(self, name: str) -> Declared | None:
        fresh = self._fresh(name)
        if fresh is None:
            records = self._client.store(None).declared_tasks([name])
            seconds = FRESH if records else UNKNOWN_FRESH
            fresh = self._client.clock.monotonic() + seconds, _read(records[0]) if records else None
            self._cached[self._client.store(None), name] = fresh
        return fresh[1]

    def _fresh(self, name: str) -> tuple[float, Declared | None] | None:
        cached = self._cached.get((self._client.store(None), name))
        return cached if cached is not None and cached[0] > self._client.clock.monotonic() else None

    def declare(self, deployed_at: datetime) -> None:
        """Record the tasks of this app in the store, as a worker does when it starts and every hour.

        The records of a newer deployment stay unchanged.
        """
        from tidemill.domain.task_records import KEPT_FOR, REFRESH, is_recent  # only workers need it

        client, registry = self._client, self._client.registry
        store, at = client.store(None), client.clock.monotonic()
        if at < self._declare_at.get(store, at) or not len(registry):
            return
        self._declare_at[store] = at + REFRESH.total_seconds()
        wanted = {
            name: record
            for task in registry
            if registry.is_served(task)
            for name in registry.names_of(task)
            if (record := _described(task, name, deployed_at)) is not None
        }
        now = client.pin or store.now()
        stored = {record.name: record for record in store.declared_tasks(list(wanted))}
        stale = [record for name, record in wanted.items() if not is_recent(stored.get(name), record, now)]
        store.declare_tasks(stale, now=client.pin)
        store.forget_tasks(now - KEPT_FOR)


def _read(record: TaskRecord) -> Declared | None:
    from tidemill.tasks.declared_elsewhere import declared_elsewhere  # few programs need it

    try:
        return declared_elsewhere(record)
    except (TidemillError, ValueError, TypeError, KeyError) as error:
        # A later version of Tidemill may record options that this one does not know.
        _log.warning(
            "the record of task %s cannot be read (%s); its jobs are stored without checks",
            record.name,
            error,
        )
        return None


def _described(task: Declared, name: str, deployed_at: datetime) -> TaskRecord | None:
    from tidemill.tasks.declared_elsewhere import record_of  # only workers need it

    try:
        return record_of(task, name, deployed_at)
    except Exception as error:  # noqa: BLE001  (evaluating the types of a user may raise anything)
        _log.debug("task %s has no record: %s", name, error)
        return None


class NamedTaskApp:
    """Tasks by name."""

    _client: Client
    known_tasks: KnownTasks  #: the tasks that jobs can be enqueued for by name

    def enqueue(self, task: str, /, **arguments: Any) -> Job[Any]:
        """Enqueue a job by the name of its task: ``app.enqueue("mail.send", to="ada")``.

        If this app declares the task, its arguments are validated. If only other code does, they are checked against what a
        worker has recorded in the store, and the job gets the queue, retries, timeout, uniqueness and limits of the task. A
        task that no worker has recorded takes any arguments, and its job gets the defaults.
        """
        return self._by_name(task).enqueue(**arguments)

    async def aenqueue(self, task: str, /, **arguments: Any) -> Job[Any]:
        """Async version of ``enqueue``."""
        declared = await self.known_tasks.aget(task)
        bound: BoundTask[..., Any] = BoundTask(self._client, declared)
        return await bound.aenqueue(**arguments)

    def bound_task(self, name: str) -> BoundTask[..., Any]:
        """Return a task by its name or alias: ``app.bound_task("mail.send").using(delay="10m").enqueue(…)``.

        A task that only other code declares is known once a worker has recorded it in the store.
        """
        return BoundTask(self._client, self.known_tasks.existing(name))

    def _by_name(self, name: str) -> BoundTask[..., Any]:
        return BoundTask(self._client, self.known_tasks.get(name))
