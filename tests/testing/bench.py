"""Helper for the test runner's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from tidemill.clock import ManualClock
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow, NewJob
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore
from tidemill.tasks.events import Events
from tidemill.tasks.options import TaskOptions
from tidemill.tasks.registry import Registry
from tidemill.tasks.task import declare
from tidemill.testing.runner import Testing


class Bench:
    """A memory store, a registry and the test runner on one manual clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.registry = Registry()
        self.events = Events()
        self.testing = Testing(self.store, self.registry, self.clock, events=self.events)

    def task(self, target: Callable[..., Any], **options: Any) -> str:
        options.setdefault("name", target.__name__)
        self.registry.add(declare(target, TaskOptions(**options)))
        return str(options["name"])

    def put(self, task: str, args: str = "{}", **fields: Any) -> UUID:
        job = NewJob(new_id(), task, args, **fields)
        self.store.enqueue([job], now=self.clock.now())
        return job.id

    def job(self, id: UUID) -> JobRow:
        (job,) = self.store.get([id], tenant=ALL_TENANTS)
        return job
