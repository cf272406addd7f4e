"""Job queries in memory.

Returned values never share mutable objects with the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from itertools import islice
from uuid import UUID

from tidemill.domain.filters import NO_COUNT, JobFilter, Page, Sort, bytes_of, page_size
from tidemill.domain.job import Claim, Execution, JobRow, LogEntry
from tidemill.domain.job_match import finds, matches
from tidemill.domain.states import HELD, ExecutionState, JobState
from tidemill.errors import BadFilter
from tidemill.stores.base import JobQueries
from tidemill.stores.memory.copies import kept_line, shown_job
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.filters import page_of, page_with_text
from tidemill.stores.memory.state import State, claim_of


class MemoryQueries(MemoryPart, JobQueries):
    """Queries about jobs."""

    def get(self, ids: Collection[UUID], *, tenant: str) -> list[JobRow]:
        with self._open() as state:
            return [shown_job(job) for job in _found(state, ids, tenant)]

    def jobs(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[JobRow]:
        with self._open() as state:
            rows = (job for job in state.jobs.values() if matches(where, job))
            if where.scans:
                page = page_with_text(
                    rows,
                    lambda job: job.id,
                    finds(where),
                    sort=sort,
                    limit=limit,
                    after=after,
                    look=where.look,
                    weigh=_weight,
                )
            else:
                page = page_of(rows, lambda job: job.id, sort=sort, limit=limit, after=after, weigh=_weight)
            return Page([shown_job(job) for job in page.items], page.next)

    def count(self, where: JobFilter, *, most: int | None = None) -> dict[JobState, int]:
        if where.scans:
            raise BadFilter(NO_COUNT, field="text")
        with self._open() as state:
            rows = (job.state for job in state.jobs.values() if matches(where, job))
            return dict(Counter(rows if most is None else islice(rows, max(most, 0))))

    def held(self, worker: UUID) -> list[Claim]:
        with self._open() as state:
            jobs = [job for id in state.held if (job := state.jobs[id]).worker == worker]
            return [claim_of(job) for job in sorted(jobs, key=lambda job: (job.claimed_at, job.id))]

    def expired(self, limit: int, *, now: datetime | None = None) -> list[JobRow]:
        with self._open() as state:
            moment = self._at(now)
            first = islice(state.expiries, max(limit, 0))
            return [shown_job(state.jobs[id]) for expires_at, id in first if expires_at <= moment]

    def executions(self, ids: Collection[UUID], *, tenant: str) -> list[Execution]:
        with self._open() as state:
            return [row for job in _found(state, ids, tenant) for row in executions_of(state, job)]

    def logs(
        self,
        id: UUID,
        *,
        tenant: str,
        after: int = 0,
        before: int | None = None,
        levels: frozenset[str] | None = None,
        limit: int = 1000,
    ) -> list[tuple[int, LogEntry]]:
        size = page_size(limit)
        with self._open() as state:
            if state.find(id, tenant) is None:
                return []
            lines = [
                (position, entry)
                for position, entry in state.logs.get(id, [])
                if position > after and (levels is None or entry.level in levels)
            ]
            if before is None:
                lines = lines[:size]
            else:
                lines = [line for line in lines if line[0] < before][-size:]
            return [(position, kept_line(entry)) for position, entry in lines]


def _found(state: State, ids: Collection[UUID], tenant: str) -> list[JobRow]:
    jobs = [job for id in set(ids) if (job := state.find(id, tenant)) is not None]
    return sorted(jobs, key=lambda job: job.id.int)


def _weight(job: JobRow) -> int:
    return bytes_of(job.args) + bytes_of(job.result)


def executions_of(state: State, job: JobRow) -> list[Execution]:
    """The executions of a job by number: ended ones, and the current one while it is held."""
    rows = list(state.executions.get(job.id, []))
    if job.state in HELD:
        rows.append(
            Execution(
                job_id=job.id,
                number=job.token,
                attempt=job.attempt,
                state=ExecutionState.RUNNING,
                worker=job.worker,
                claimed_at=job.claimed_at,
                started_at=job.started_at,
                finished_at=None,
            )
        )
    return rows
