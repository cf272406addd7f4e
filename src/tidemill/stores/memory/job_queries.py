"""Job queries in memory.

Returned values never share mutable objects with the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from itertools import islice
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS, NO_COUNT, JobFilter, Page, Sort, bytes_of, fold, page_size
from tidemill.domain.job import Claim, Execution, JobRow, LogEntry
from tidemill.domain.job_match import finds, matches
from tidemill.domain.log_search import FoundLine, LogFilter, LogPlace, read_log_cursor
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
            rows = (
                job for job in state.jobs.values() if matches(where, job) and _is_in_group(state, where, job)
            )
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
            rows = (
                job.state
                for job in state.jobs.values()
                if matches(where, job) and _is_in_group(state, where, job)
            )
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

    def search_logs(self, where: LogFilter, *, limit: int = 100, after: str | None = None) -> Page[FoundLine]:
        size = page_size(limit)
        before = None if after is None else read_log_cursor(after)
        sought = None if where.text is None else fold(where.text)
        is_bounded = sought is not None or bool(where.tasks) or where.tenant != ALL_TENANTS
        with self._open() as state:
            lines = [
                (LogPlace(entry.at, position), entry)
                for id, log in state.logs.items()
                if where.job_id in (None, id)
                for position, entry in log
                if (where.levels is None or entry.level in where.levels)
                and (where.since is None or entry.at >= where.since)
                and (where.until is None or entry.at < where.until)
            ]
            lines = [line for line in lines if before is None or line[0] < before]
            lines.sort(key=lambda line: line[0], reverse=True)
            look = max(where.look, 1)
            last = lines[look - 1][0] if is_bounded and len(lines) >= look else None
            matching = [
                FoundLine(place.position, kept_line(entry), job.task, job.queue, job.tenant)
                for place, entry in (lines[:look] if is_bounded else lines)
                if (job := state.find(entry.job_id, where.tenant)) is not None
                and (not where.tasks or job.task in where.tasks)
                and (sought is None or sought in fold(entry.message))
            ]
        if len(matching) > size:
            line = matching[size - 1]
            return Page(matching[:size], LogPlace(line.entry.at, line.position).cursor())
        return Page(matching, None if last is None else last.cursor())


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


def _is_in_group(state: State, where: JobFilter, job: JobRow) -> bool:
    """Whether the failure that ended the job is in the group that the filter names, if it names one."""
    return where.error_group is None or any(
        (row.job, row.at, row.failure.fingerprint) == (job.id, job.finished_at, where.error_group)
        for row in state.failures
    )
