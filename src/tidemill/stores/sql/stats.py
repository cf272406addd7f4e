"""Statistics of the SQL store."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from tidemill.domain.filters import JobFilter
from tidemill.domain.states import JobState
from tidemill.domain.stats import (
    LATEST,
    LOOK,
    DeclaredCounts,
    Depth,
    EndedTiming,
    HeldRow,
    HeldSelection,
    Holder,
    TaskBacklog,
    UnfinishedCounts,
)
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.job_rows import at_most, filter_takes, load_progress, tenant_of
from tidemill.stores.stats import OccupancyStore, StatsStore


class SqlStats(SqlPart, StatsStore, OccupancyStore):
    """standing, declared, depths, lately, crowd, backlogs, holding, holders."""

    def standing(self, *, tenant: str) -> dict[JobState, int]:
        if tenant_of(tenant) is not None:
            rows = self._db.run("count", filter_takes(JobFilter(tenant)))
        else:
            rows = self._db.run("standing")
        return {JobState(state): jobs for state, jobs in rows}

    def declared(self, *, tenant: str) -> DeclaredCounts:
        return DeclaredCounts(*self._db.run("declared", {"tenant": tenant_of(tenant)})[0])

    def depths(self, *, tenant: str, now: datetime | None = None) -> list[Depth]:
        return [Depth(*row) for row in self._db.run("depths", {"now": now, "tenant": tenant_of(tenant)})]

    def lately(self, tasks: Collection[str], *, tenant: str, per_task: int = LATEST) -> list[EndedTiming]:
        if not tasks:
            return []
        takes = {"tasks": sorted(set(tasks)), "tenant": tenant_of(tenant), "per_task": max(per_task, 0)}
        return [
            EndedTiming(row[0], row[1], JobState(row[2]), *row[3:]) for row in self._db.run("lately", takes)
        ]

    def crowd(self, *, tenant: str, look: int = LOOK) -> UnfinishedCounts:
        rows = self._db.run("crowd", {"tenant": tenant_of(tenant), "look": max(look, 0)})
        counts: dict[str, dict[JobState, int]] = {}
        for _, task, state, jobs in rows:
            if task is not None:
                counts.setdefault(task, {})[JobState(state)] = jobs
        return UnfinishedCounts(counts, rows[0][0] >= look > 0)

    def backlogs(self, *, tenant: str, served: Collection[str]) -> list[TaskBacklog]:
        takes = {"tenant": tenant_of(tenant), "served": sorted(served)}
        return [TaskBacklog(*row) for row in self._db.run("backlogs", takes)]

    def holding(
        self,
        which: HeldSelection,
        *,
        tenant: str,
        longer_than: timedelta | None = None,
        limit: int = 100,
        now: datetime | None = None,
    ) -> list[HeldRow]:
        moment = self._time(now)
        takes = {
            "now": moment,
            "tenant": tenant_of(tenant),
            "since": None if longer_than is None else moment - longer_than,
            "limit": at_most(limit),
        }
        rows = self._db.run("holding", takes, flags=() if which is HeldSelection.ALL else (which.value,))
        return [_held(row) for row in rows]

    def holders(self, *, tenant: str) -> list[Holder]:
        return [Holder(*row) for row in self._db.run("holders", {"tenant": tenant_of(tenant)})]


def _held(row: Row) -> HeldRow:
    progress = load_progress(row[13])
    return HeldRow._make((*row[:4], JobState(row[4]), *row[5:13], None if progress is None else progress.at))
