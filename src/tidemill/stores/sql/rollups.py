"""Rollups of the SQL store."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.rollups import (
    LENGTHS,
    Compaction,
    EverEnded,
    EverExecuted,
    EverTotals,
    Expiry,
    JobTimes,
    RollupScope,
    since_of,
    times_of,
)
from tidemill.domain.states import JobState
from tidemill.domain.stats import (
    EndedGroup,
    EndedGroups,
    Group,
    GroupedSeries,
    Series,
    grouped_series,
    scope_of,
    series_of,
    steps_of,
)
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import QueryCall, Row
from tidemill.stores.sql.job_rows import at_most, tenant_of
from tidemill.stores.stats import RollupStore


class SqlRollups(SqlPart, RollupStore):
    """ended_by, series, series_by, times_by, ended_ever, fold_ends, compact_rollups, drop_rollups."""

    def ended_by(
        self,
        group: Group,
        window: timedelta,
        *,
        tenant: str,
        failures: bool = False,
        limit: int = 100,
        now: datetime | None = None,
    ) -> EndedGroups:
        since = since_of(self._time(now), window)
        takes = {
            "scope": scope_of(group, tenant),
            "group": group,
            "since": since,
            "tenant": tenant_of(tenant),
            "limit": at_most(limit),
        }
        rows = self._db.run("ended_by", takes, flags=("failures",) if failures else ())
        return EndedGroups([_ended(row, group) for row in rows], since)

    def series(
        self,
        window: timedelta,
        step: timedelta,
        *,
        tenant: str,
        queue: str | None = None,
        task: str | None = None,
        now: datetime | None = None,
    ) -> Series:
        steps, length = steps_of(self._time(now), window, step)
        is_whole = tenant == ALL_TENANTS and queue is None and task is None
        takes = {
            "scope": RollupScope.TOTAL if is_whole else RollupScope.DETAIL,
            "queue": queue,
            "task": task,
            "since": steps[0],
            "until": steps[-1] + length,
            "step": length,
            "tenant": tenant_of(tenant),
        }
        counts, times = self._db.run_together(
            [QueryCall("ended_series", takes), QueryCall("series_times", takes)]
        )
        return series_of(steps, length, counts, times)

    def series_by(
        self,
        group: Group,
        window: timedelta,
        step: timedelta,
        *,
        tenant: str,
        limit: int = 8,
        now: datetime | None = None,
    ) -> GroupedSeries:
        steps, length = steps_of(self._time(now), window, step)
        takes = {
            "scope": scope_of(group, tenant),
            "group": group,
            "since": steps[0],
            "until": steps[-1] + length,
            "step": length,
            "tenant": tenant_of(tenant),
            "limit": at_most(limit),
        }
        rows = self._db.run("ended_series_by", takes)
        if group is Group.WORKER:
            rows = [(at, str(UUID(name)) if name else "", *counts) for at, name, *counts in rows]
        return grouped_series(steps, length, rows)

    def times_by(
        self,
        group: Group,
        window: timedelta,
        *,
        tenant: str,
        names: Collection[str] | None = None,
        now: datetime | None = None,
    ) -> dict[str, JobTimes]:
        takes = {
            "group": group,
            "since": since_of(self._time(now), window),
            "tenant": tenant_of(tenant),
            "names": None if names is None else sorted(names),
        }
        return _times(self._db.run("times_by", takes))

    def ended_ever(self) -> EverTotals:
        counts, times = self._db.run_together([QueryCall("ended_ever", {}), QueryCall("times_ever", {})])
        return EverTotals(
            [
                EverEnded(task, queue, JobState(state), jobs, retried)
                for scope, task, queue, state, jobs, retried in counts
                if scope == RollupScope.EVER
            ],
            [
                EverExecuted(task, queue, state, jobs)
                for scope, task, queue, state, jobs, _ in counts
                if scope == RollupScope.EXECUTION
            ],
            _times(times),
        )

    def fold_ends(self, *, limit: int = 5_000) -> int:
        return _number(self._db.run("fold_ends", {"limit": at_most(limit)}))

    def compact_rollups(self, compaction: Compaction) -> int:
        takes = {
            "unit": compaction.unit,
            "into": compaction.into,
            "step": LENGTHS[compaction.into],
            "before": compaction.before,
        }
        return _number(self._db.run("compact_rollups", takes))

    def drop_rollups(self, expiry: Expiry) -> int:
        return _number(self._db.run("drop_rollups", {"scope": expiry.scope, "before": expiry.before}))


def _number(rows: list[Row]) -> int:
    number: int = rows[0][0]
    return number


def _times(rows: list[Row]) -> dict[str, JobTimes]:
    groups: dict[str, list[tuple[str, int, int, int]]] = {}
    for name, measure, bucket, jobs, time in rows:
        groups.setdefault(name, []).append((measure, bucket, jobs, time))
    return {name: times_of(measured) for name, measured in groups.items()}


def _ended(row: Row, group: Group) -> EndedGroup:
    name, total, completed, failed, cancelled, retried, attempts, most, ran, *times, tenants, last_at = row
    run_time, longest, lag, longest_lag = (timedelta(microseconds=time) for time in times)
    if group is Group.WORKER:
        name = str(UUID(name)) if name else None
    if group is Group.STATE:
        tenants = 0
    return EndedGroup(
        name, total, completed, failed, cancelled, retried, attempts, most, ran,
        run_time, longest, lag, longest_lag, tenants, last_at,
    )  # fmt: skip
