"""Failures of jobs in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.failures import (
    ErrorMark,
    FailureCount,
    FailureGroup,
    FailurePart,
    StoredFailure,
    failure_of,
)
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.domain.rollups import floored
from tidemill.domain.states import ENDED
from tidemill.domain.stats import FAILURES
from tidemill.stores.failures import FailureStore
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import State

_HOUR = timedelta(hours=1)


def record_failure(state: State, job: JobRow) -> None:
    """Record the end of a job, if it is a failure."""
    if job.state in FAILURES and job.finished_at is not None:
        failure = failure_of(job.task, job.state, job.error, job.reason)
        at = job.finished_at
        state.failures.append(StoredFailure(at, at, job.tenant, job.task, failure, job.id))


class MemoryFailures(MemoryPart, FailureStore):
    """The verbs of failures, computed by full scans."""

    def failure_groups(
        self,
        window: timedelta,
        *,
        tenant: str,
        fingerprint: str | None = None,
        task: str | None = None,
        limit: int = 100,
        now: datetime | None = None,
    ) -> list[FailureGroup]:
        with self._open() as state:
            since = self._at(now) - window
            groups: dict[str, list[StoredFailure]] = {}
            for row in _rows(state, tenant, task):
                if row.at >= since and fingerprint in (None, row.failure.fingerprint):
                    groups.setdefault(row.failure.fingerprint, []).append(row)
            rows = [_group(key, alike, _rows(state, tenant, task)) for key, alike in groups.items()]
            rows.sort(key=lambda group: (-group.jobs, -group.last_at.timestamp(), group.fingerprint))
            return rows[: max(limit, 0)]

    def failure_series(
        self,
        window: timedelta,
        steps: int,
        *,
        tenant: str,
        fingerprints: Collection[str],
        now: datetime | None = None,
    ) -> dict[str, list[int]]:
        with self._open() as state:
            since, step = self._at(now) - window, window / steps
            series = {key: [0] * steps for key in fingerprints}
            for row in _rows(state, tenant):
                key = row.failure.fingerprint
                if row.at >= since and key in series:
                    series[key][min((row.at - since) // step, steps - 1)] += row.jobs
            return series

    def failure_counts(
        self,
        fingerprint: str,
        part: FailurePart,
        window: timedelta,
        *,
        tenant: str,
        limit: int = 20,
        now: datetime | None = None,
    ) -> list[FailureCount]:
        with self._open() as state:
            since = self._at(now) - window
            parts: dict[str, list[StoredFailure]] = {}
            for row in _rows(state, tenant):
                if row.at >= since and row.failure.fingerprint == fingerprint:
                    parts.setdefault(_name(row, part), []).append(row)
            counts = []
            for name, rows in parts.items():
                last = max(rows, key=_order)
                jobs = sum(row.jobs for row in rows)
                counts.append(FailureCount(name, jobs, last.at, last.failure.message, last.job))
            counts.sort(key=lambda count: (-count.jobs, -count.last_at.timestamp(), count.name))
            return counts[: max(limit, 0)]

    def error_marks(self, *, tenant: str) -> list[ErrorMark]:
        with self._open() as state:
            wanted = [
                mark
                for mark in state.error_marks.values()
                if tenant == ALL_TENANTS or mark.tenant in (tenant, ALL_TENANTS)
            ]
            return sorted(wanted, key=lambda mark: (mark.fingerprint, mark.tenant))

    def put_error_marks(self, marks: Sequence[ErrorMark], *, now: datetime | None = None) -> None:
        with self._open() as state:
            at = self._at(now)
            for mark in marks:
                state.error_marks[mark.tenant, mark.fingerprint] = mark._replace(at=at)

    def merge_failures(self, before: datetime, *, limit: int = 5_000) -> int:
        with self._open() as state:
            merged: dict[tuple[datetime, str, str, str], list[StoredFailure]] = {}
            kept: list[StoredFailure] = []
            number = 0
            for row in sorted(state.failures, key=_order):
                if row.at < before and number < limit and row.job and not _is_ended(state, row.job):
                    key = (floored(row.at, _HOUR), row.tenant, row.task, row.failure.fingerprint)
                    merged.setdefault(key, []).append(row)
                    number += 1
                else:
                    kept.append(row)
            state.failures = kept + [_merged(rows) for rows in merged.values()]
            return number

    def drop_failures(self, before: datetime) -> int:
        with self._open() as state:
            kept = [row for row in state.failures if row.at >= before]
            dropped = len(state.failures) - len(kept)
            state.failures = kept
            return dropped


def _rows(state: State, tenant: str, task: str | None = None) -> Iterator[StoredFailure]:
    for row in state.failures:
        if tenant in (ALL_TENANTS, row.tenant) and task in (None, row.task):
            yield row


def _group(fingerprint: str, alike: Sequence[StoredFailure], ever: Iterable[StoredFailure]) -> FailureGroup:
    last = max(alike, key=_order)
    return FailureGroup(
        fingerprint,
        sum(row.jobs for row in alike),
        len({row.task for row in alike}),
        len({row.tenant for row in alike}),
        min(row.first_at for row in ever if row.failure.fingerprint == fingerprint),
        last.at,
        last.task,
        last.failure.type,
        last.failure.place,
        last.failure.message,
        last.job,
    )


def _order(row: StoredFailure) -> tuple[datetime, bytes]:
    return row.at, b"" if row.job is None else row.job.bytes


def _name(row: StoredFailure, part: FailurePart) -> str:
    if part is FailurePart.TASK:
        return row.task
    return row.tenant if part is FailurePart.TENANT else row.failure.variant


def _is_ended(state: State, id: UUID) -> bool:
    job = state.jobs.get(id)
    return job is not None and job.state in ENDED


def _merged(rows: Sequence[StoredFailure]) -> StoredFailure:
    first = rows[0]
    return first._replace(
        at=max(row.at for row in rows),
        first_at=min(row.first_at for row in rows),
        failure=first.failure._replace(variant="", message=""),
        job=None,
        jobs=sum(row.jobs for row in rows),
    )
