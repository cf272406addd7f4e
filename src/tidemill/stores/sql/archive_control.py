"""Restoring and erasing archived jobs in the SQL store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tidemill.domain.job import Execution, JobRow, LogEntry, Progress
from tidemill.domain.limits import gate_of
from tidemill.domain.retention import RestoredJob
from tidemill.stores.archive_control import ArchiveControlStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.job_rows import dump, dump_details, dump_error, dump_mapping, tenant_of
from tidemill.stores.sql.streams import stream_columns

_PLAIN = (
    "id", "tenant", "queue", "task", "priority", "attempt", "max_attempts", "crashes", "token", "run_at", "created_at",
    "expires_at", "timeout", "unique_key", "reason", "args", "state", "worker", "claimed_at", "started_at", "finished_at",
    "cancel_reason", "result",
)  # fmt: skip
_EXECUTION = (
    "job_id",
    "number",
    "attempt",
    "state",
    "worker",
    "claimed_at",
    "started_at",
    "finished_at",
    "reason",
)
_LOG = ("job_id", "number", "at", "level", "stage", "message", "duration")


class SqlArchiveControl(SqlPart, ArchiveControlStore):
    """The verbs that change archived jobs."""

    def restore(self, jobs: Sequence[RestoredJob]) -> frozenset[UUID]:
        if not jobs:
            return frozenset()
        rows = [item.job for item in jobs]
        columns = _columns(rows, _PLAIN)
        columns |= {
            "limits": [gate_of(job.limits) or None for job in rows],
            "details": [dump_details(job.details) for job in rows],
            "execution": [None if (last := _last(item)) is None else last.state for item in jobs],
            "progress": [_dump_progress(job.progress) for job in rows],
            "error": [dump_error(job.error) for job in rows],
        }
        with self._db.transaction():
            new = frozenset(row[0] for row in self._db.run("restore", None, columns))
            inserted = [item for item in jobs if item.job.id in new]
            earlier = [
                execution
                for item in inserted
                for execution in item.executions
                if execution is not _last(item)
            ]
            self._insert(
                "restore_executions",
                earlier,
                _EXECUTION,
                error=lambda execution: dump_error(execution.error),
            )
            lines = [entry for item in inserted for entry in item.logs]
            self._insert("restore_logs", lines, _LOG, details=lambda entry: dump_mapping(entry.details))
            if items := [entry for item in inserted for entry in item.streams]:
                columns = stream_columns(items)
                del columns["worker"]
                self._db.run("restore_streams", None, columns)
        return new

    def _insert(
        self, query: str, rows: Sequence[Any], names: Iterable[str], **computed: Callable[[Any], object]
    ) -> None:
        if rows:
            columns = _columns(rows, names)
            columns |= {name: [compute(row) for row in rows] for name, compute in computed.items()}
            self._db.run(query, None, columns)

    def erase_archived(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        if not ids:
            return frozenset()
        takes = {"ids": list(ids), "tenant": tenant_of(tenant)}
        return frozenset(row[0] for row in self._db.run("erase_archived", takes))

    def scrub(self) -> None:
        self._db.scrub()

    def make_archive_months(self, *, now: datetime | None = None) -> int:
        return sum(row[0] for row in self._db.run("make_archive_months", {"now": now}))

    def drop_archive_months(self, tier: str, ended_before: datetime) -> int:
        takes = {"tier": tier, "ended_before": ended_before}
        return sum(row[0] for row in self._db.run("drop_archive_months", takes))


def _columns(rows: Sequence[JobRow | Execution | LogEntry], names: Iterable[str]) -> dict[str, list[Any]]:
    return {name: [getattr(row, name) for row in rows] for name in names}


def _last(item: RestoredJob) -> Execution | None:
    """The execution that ended the job; a job that was cancelled while it waited has none."""
    job = item.job
    for execution in item.executions:
        same = (execution.number, execution.worker, execution.claimed_at, execution.finished_at)
        if same == (job.token, job.worker, job.claimed_at, job.finished_at):
            return execution
    return None


def _dump_progress(progress: Progress | None) -> str | None:
    if progress is None:
        return None
    at = None if progress.at is None else progress.at.astimezone(UTC).isoformat()
    return dump([progress.fraction, progress.step, progress.total, progress.message, progress.stage, at])
