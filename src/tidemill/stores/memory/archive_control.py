"""Restoring and erasing archived jobs in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import UniqueHold
from tidemill.domain.retention import RestoredJob
from tidemill.stores.archive_control import ArchiveControlStore
from tidemill.stores.memory import unique_keys
from tidemill.stores.memory.core import MemoryPart, refuse_repeats


class MemoryArchiveControl(MemoryPart, ArchiveControlStore):
    """The verbs that change archived jobs."""

    def restore(self, jobs: Sequence[RestoredJob]) -> frozenset[UUID]:
        with self._open() as state:
            refuse_repeats(item.job.id for item in jobs)
            new = [item for item in jobs if item.job.id not in state.jobs]
            for item in new:
                job = replace(item.job, archived_at=None)
                state.place(job)
                state.executions[job.id] = list(item.executions)
                for entry in item.logs:
                    state.last_position += 1
                    state.logs.setdefault(job.id, []).append((state.last_position, entry))
                for item_entry in item.streams:
                    items = state.streams.setdefault(job.id, {})
                    items[item_entry.name, item_entry.position] = item_entry
                if job.unique_key is not None:
                    state.rules[job.id] = UniqueHold(job.unique_key)
            return frozenset(item.job.id for item in new)

    def erase_archived(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        with self._open() as state:
            ours = {
                id for id in ids if id in state.archive and tenant in (ALL_TENANTS, state.archive[id].tenant)
            }
            for id in ours:
                del state.archive[id]
                if id not in state.jobs:
                    unique_keys.drop(state, id)
            return frozenset(ours)

    def scrub(self) -> None:
        """Nothing to do: there is no file."""

    def make_archive_months(self, *, now: datetime | None = None) -> int:
        return 0

    def drop_archive_months(self, tier: str, ended_before: datetime) -> int:
        return 0
