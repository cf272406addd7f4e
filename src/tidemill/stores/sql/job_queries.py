"""Job queries in the SQL store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.filters import (
    NO_COUNT,
    JobFilter,
    Page,
    Sort,
    bytes_of,
    encode_cursor,
    fitting,
    fold,
    page_size,
)
from tidemill.domain.job import Claim, Execution, JobRow, LogEntry
from tidemill.domain.log_search import FoundLine, LogFilter, LogPlace, read_log_cursor
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter
from tidemill.stores.base import JobQueries
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.job_rows import (
    at_most,
    filter_flags,
    filter_takes,
    last_execution,
    load_claim,
    load_execution,
    load_log,
    page_takes,
    tenant_of,
    text_takes,
)

_ARGS, _RESULT, _ERROR, _HEAVY = 17, 26, 27, 28
"""Columns of the query ``jobs``."""


def _fitting(rows: Sequence[Row], limit: int) -> Sequence[Row]:
    """The rows that fit on a page."""
    sizes = (row[_HEAVY] or bytes_of(row[_ARGS]) + bytes_of(row[_RESULT]) for row in rows[:limit])
    return rows[: fitting(sizes)]


class SqlQueries(SqlPart, JobQueries):
    """get, jobs, count, held, expired, executions, logs, search_logs."""

    def get(self, ids: Collection[UUID], *, tenant: str) -> list[JobRow]:
        if not ids:
            return []
        return self._jobs(self._db.run("get", {"ids": list(ids), "tenant": tenant_of(tenant)}))

    def jobs(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[JobRow]:
        takes = filter_takes(where) | page_takes(sort, page_size(limit), after)
        if where.scans:
            return self._with_text(where, takes, sort, limit)
        rows = self._db.run("jobs", takes, flags=(sort.value, *filter_flags(where)))
        kept = _fitting(rows, limit)
        following = encode_cursor(sort, kept[-1][0]) if len(rows) > len(kept) else None
        return Page(self._whole(kept), following)

    def _whole(self, rows: Sequence[Row]) -> list[JobRow]:
        """Jobs of the query ``jobs``, completed with the arguments and results that it left out."""
        heavy = [row[0] for row in rows if row[_HEAVY]]
        full_rows = {row[0]: row for row in self._db.run("get", {"ids": heavy})} if heavy else {}
        whole: list[Row] = []
        for row in rows:
            if not row[_HEAVY]:
                whole.append(row[:_HEAVY])
            elif row[0] in full_rows:  # otherwise it was deleted in the meantime
                full = full_rows[row[0]]
                # Other columns keep their values, because the job may have changed and no longer match.
                whole.append(
                    (*row[:_ARGS], full[_ARGS], *row[_ARGS + 1 : _RESULT], full[_RESULT], row[_ERROR])
                )
        return self._jobs(whole)

    def _with_text(self, where: JobFilter, takes: dict[str, Any], sort: Sort, limit: int) -> Page[JobRow]:
        """The jobs with the text or the id suffix among the next ones; a first query finds where to stop."""
        flags = [sort.value, *filter_flags(where)]
        scope = {name: value for name, value in takes.items() if name != "limit"}
        last = self._db.run("looked", scope | {"skip": max(where.look, 1) - 1}, flags=flags)
        if last:
            takes["floor" if sort is Sort.NEWEST else "ceiling"] = last[0][0]
        sought = text_takes(where)
        if where.text and where.text_in_args:
            flags += ["in_args"] if sought["text"] == sought["escaped"] else ["in_args", "in_args_escaped"]
        rows = self._db.run("jobs", takes | sought, flags=flags)
        kept = _fitting(rows, limit)
        if len(rows) > len(kept):
            return Page(self._whole(kept), encode_cursor(sort, kept[-1][0]))
        return Page(self._whole(kept), encode_cursor(sort, last[0][0]) if last else None)

    def count(self, where: JobFilter, *, most: int | None = None) -> dict[JobState, int]:
        if where.scans:
            raise BadFilter(NO_COUNT, field="text")
        takes = filter_takes(where) | {"most": None if most is None else max(most, 0)}
        return {
            JobState(state): jobs for state, jobs in self._db.run("count", takes, flags=filter_flags(where))
        }

    def held(self, worker: UUID) -> list[Claim]:
        return [load_claim(row) for row in self._db.run("held", {"worker": worker})]

    def expired(self, limit: int, *, now: datetime | None = None) -> list[JobRow]:
        return self._jobs(self._db.run("expired", {"now": now, "limit": at_most(limit)}))

    def executions(self, ids: Collection[UUID], *, tenant: str) -> list[Execution]:
        if not ids:
            return []
        rows = self._db.run("get", {"ids": list(ids), "tenant": tenant_of(tenant)})
        own = [row[0] for row in rows]
        executions = [execution for row in rows if (execution := last_execution(row)) is not None]
        if own:
            executions += [load_execution(row) for row in self._db.run("executions", {"ids": own})]
        return sorted(executions, key=lambda execution: (execution.job_id, execution.number))

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
        takes = {
            "id": id,
            "tenant": tenant_of(tenant),
            "after": after,
            "before": before,
            "levels": None if levels is None else sorted(levels),
            "limit": page_size(limit),
        }
        lines = [
            load_log(row)
            for row in self._db.run("logs", takes, flags=("oldest" if before is None else "newest",))
        ]
        return lines if before is None else lines[::-1]

    def search_logs(self, where: LogFilter, *, limit: int = 100, after: str | None = None) -> Page[FoundLine]:
        size = page_size(limit)
        before = None if after is None else read_log_cursor(after)
        takes: dict[str, Any] = {
            "levels": None if where.levels is None else sorted(where.levels),
            "job_id": where.job_id,
            "since": where.since,
            "until": where.until,
            "before_at": None if before is None else before.at,
            "before_position": None if before is None else before.position,
        }
        sought = {
            "text": None if where.text is None else fold(where.text),
            "tasks": sorted(where.tasks) or None,
            "tenant": tenant_of(where.tenant),
        }
        last: Sequence[Row] = ()
        if any(value is not None for value in sought.values()):
            last = self._db.run("searched_logs", takes | {"skip": max(where.look, 1) - 1})
        floor = {"floor_at": last[0][0], "floor_position": last[0][1]} if last else {}
        rows = self._db.run("search_logs", takes | sought | floor | {"limit": size + 1})
        lines = [FoundLine(*load_log(row[:9]), *row[9:]) for row in rows[:size]]
        if len(rows) > size:
            return Page(lines, LogPlace(lines[-1].entry.at, lines[-1].position).cursor())
        return Page(lines, LogPlace(*last[0]).cursor() if last else None)
