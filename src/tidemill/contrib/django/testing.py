"""Test support: jobs of one test, in memory, run in the test's own thread and transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.db import connections, transaction
from django.test import TestCase

from tidemill.app import App
from tidemill.client.core import client_of
from tidemill.clock import ManualClock
from tidemill.contrib.django.project import PROJECT, open_transaction
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.tasks.middleware import HookStep
from tidemill.testing.runner import Drained, Testing

__all__ = ["IsolatedJobs", "TidemillTestCase", "TidemillTestMixin", "isolated_jobs"]


class IsolatedJobs:
    """The jobs of one test. Jobs of a transaction that was rolled back disappear, as in a database."""

    def __init__(self, app: App, testing: Testing) -> None:
        self.app, self.testing = app, testing
        self._marks: dict[UUID, _Mark] = {}

    @contextmanager
    def watched(self, step: HookStep) -> Iterator[None]:
        """Remember the transaction in which jobs are enqueued."""
        yield
        alias = open_transaction()
        if alias is not None:
            for job in step.jobs:
                self._marks[job.id] = _Mark(alias)

    def enqueued(self, task: Any = None) -> list[JobRow]:
        """Return the waiting jobs, oldest first; of one task, or of all. ``task`` may be a task of Django's standard."""
        self._forget_rolled_back()
        return self.testing.enqueued(getattr(task, "module_path", task))

    def drain(self, limit: int = 10_000, raise_errors: bool = False) -> Drained:
        """Run due jobs in this thread. Their queries are part of the test's transaction."""
        self._forget_rolled_back()
        return self.testing.drain(limit, raise_errors)

    def _forget_rolled_back(self) -> None:
        for id, mark in list(self._marks.items()):
            if mark.is_rolled_back:
                job = self.app.jobs.get(id, tenant=ALL_TENANTS)
                job.cancel()
                job.delete()
                del self._marks[id]


class _Mark:
    """A function that Django keeps for the commit, and drops with a rollback."""

    def __init__(self, alias: str) -> None:
        self._alias, self._committed = alias, False
        transaction.on_commit(self._commit, using=alias)

    def _commit(self) -> None:
        self._committed = True

    @property
    def is_rolled_back(self) -> bool:
        waiting = connections[self._alias].run_on_commit
        return not self._committed and not any(entry[1] == self._commit for entry in waiting)


@contextmanager
def isolated_jobs() -> Iterator[IsolatedJobs]:
    """Keep jobs in memory inside the block, with a manual clock: ``with isolated_jobs() as jobs:``."""
    app = PROJECT.app
    client = client_of(app)
    client.end_services()
    source, client.open_transaction = client.open_transaction, None
    PROJECT.pin(pinned=True)
    try:
        with app.override("memory://", clock=ManualClock()), app.testing() as testing:
            jobs = IsolatedJobs(app, testing)
            app.hooks.enqueue_managers.append(jobs.watched)
            try:
                yield jobs
            finally:
                app.hooks.enqueue_managers.remove(jobs.watched)
    finally:
        PROJECT.pin(pinned=False)
        client.open_transaction = source


class TidemillTestMixin:
    """Gives every test of a ``TestCase`` its own jobs: ``self.jobs.enqueued(task)`` and ``self.jobs.drain()``."""

    jobs: IsolatedJobs

    def setUp(self) -> None:
        """Isolate the jobs of this test."""
        case: Any = self
        self.jobs = case.enterContext(isolated_jobs())
        super().setUp()  # type: ignore[misc]


class TidemillTestCase(TidemillTestMixin, TestCase):  # type: ignore[misc]  # Django has no types
    """A ``TestCase`` with jobs of its own."""
