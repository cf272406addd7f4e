"""Helpers for the tests of jobs that follow a completion."""

from __future__ import annotations

from tests.engine.harness import Harness

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import JobRow
from tidemill.stores.base import Store


def stored(harness: Harness, task: str) -> list[JobRow]:
    """Up to a thousand jobs of a task, oldest first."""
    return stored_in(harness.line.real, task)


def stored_in(store: Store, task: str) -> list[JobRow]:
    """Up to a thousand jobs of a task in this store, oldest first."""
    found = store.jobs(JobFilter(ALL_TENANTS, tasks=frozenset({task})), limit=1000).items
    return sorted(found, key=lambda job: job.id)
