"""Reading jobs from the SQL store; nothing here changes anything."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import JobFilter, Page, Sort, encode_cursor, page_size
from tidemill.domain.job import Claim, Execution, Job, LogEntry
from tidemill.domain.states import JobState
from tidemill.stores.base import Queries
from tidemill.stores.sql.face import Face
from tidemill.stores.sql.values import (
    filter_takes,
    last_execution,
    load_claim,
    load_execution,
    load_log,
    page_takes,
    tenant_of,
)


class SqlQueries(Face, Queries):
    """get, jobs, count, held, expired, executions, logs."""

    def get(self, ids: Collection[UUID], *, tenant: str) -> list[Job]:
        if not ids:
            return []
        return self._jobs(self._db.run("get", {"ids": list(ids), "tenant": tenant_of(tenant)}))

    def jobs(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[Job]:
        takes = filter_takes(where) | page_takes(sort, page_size(limit), after)
        rows = self._db.run("jobs", takes, flags=(sort.value,))
        more = len(rows) > limit
        items = self._jobs(rows[:limit])
        return Page(items, encode_cursor(sort, items[-1].id) if more else None)

    def count(self, where: JobFilter) -> dict[JobState, int]:
        return {JobState(state): jobs for state, jobs in self._db.run("count", filter_takes(where))}

    def held(self, worker: UUID) -> list[Claim]:
        return [load_claim(row) for row in self._db.run("held", {"worker": worker})]

    def expired(self, limit: int, *, now: datetime | None = None) -> list[Job]:
        return self._jobs(self._db.run("expired", {"now": now, "limit": max(limit, 0)}))

    def executions(self, ids: Collection[UUID], *, tenant: str) -> list[Execution]:
        if not ids:
            return []
        rows = self._db.run("get", {"ids": list(ids), "tenant": tenant_of(tenant)})
        own = [row[0] for row in rows]
        found = [execution for row in rows if (execution := last_execution(row)) is not None]
        if own:
            found += [load_execution(row) for row in self._db.run("executions", {"ids": own})]
        return sorted(found, key=lambda execution: (execution.job_id, execution.number))

    def logs(self, id: UUID, *, tenant: str, after: int = 0, limit: int = 1000) -> list[tuple[int, LogEntry]]:
        takes = {"id": id, "tenant": tenant_of(tenant), "after": after, "limit": page_size(limit)}
        return [load_log(row) for row in self._db.run("logs", takes)]
