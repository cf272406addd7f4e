"""Archive tiers in the SQL store."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import UNARCHIVED, JobFilter, Page, Sort, encode_cursor, page_size
from tidemill.domain.job import Execution, LogEntry
from tidemill.domain.retention import ArchivedJob, Position, Selection, archive_document
from tidemill.domain.streams import StreamEntry
from tidemill.errors import BadFilter
from tidemill.stores.archive import ArchiveStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.job_rows import (
    at_most,
    filter_takes,
    last_execution,
    load_archived,
    load_execution,
    load_log,
    page_takes,
    tenant_of,
)

_ORIGINS = ("parent_ids", "definition_id", "definition_version", "schedule_id", "fire_at", "flow_id")


class SqlArchive(SqlPart, ArchiveStore):
    """The archive verbs."""

    def archivable(self, selection: Selection, *, policy: str, tier: str) -> list[ArchivedJob]:
        takes = range_takes(selection) | {"limit": selection.limit}
        return self._documents(self._db.run("archivable", takes, flags=_flags(selection)), policy, tier)

    def _documents(self, rows: Sequence[Row], policy: str, tier: str) -> list[ArchivedJob]:
        if not rows:
            return []
        executions, logs = self._written(rows)
        streams: dict[UUID, list[StreamEntry]] = defaultdict(list)
        for id, name, number, n, data in self._db.run("streams_of", {"ids": [row[0] for row in rows]}):
            streams[id].append(StreamEntry(id, number, None, name, n, data))
        return [
            archive_document(
                job, executions[job.id], logs[job.id], streams.get(job.id, ()), tier=tier, policy=policy
            )
            for job in self._jobs(rows)
        ]

    def archived_due(self, selection: Selection) -> list[ArchivedJob]:
        takes = range_takes(selection) | {"tier": selection.tier, "limit": selection.limit}
        return [load_archived(row) for row in self._db.run("archived_due", takes)]

    def ended_beyond(self, selection: Selection, newest: int) -> Position | None:
        takes = range_takes(selection) | {"newest": at_most(newest)}
        if selection.tier is None:
            rows = self._db.run("ended_beyond", takes, flags=_flags(selection))
        else:
            rows = self._db.run("archived_beyond", takes | {"tier": selection.tier})
        return Position(*rows[0]) if rows else None

    def _written(self, rows: Sequence[Row]) -> tuple[dict[UUID, list[Execution]], dict[UUID, list[LogEntry]]]:
        """The executions of these jobs by number, and their log lines by position."""
        ids = [row[0] for row in rows]
        executions: dict[UUID, list[Execution]] = defaultdict(list)
        logs: dict[UUID, list[LogEntry]] = defaultdict(list)
        for execution in map(load_execution, self._db.run("executions", {"ids": ids})):
            executions[execution.job_id].append(execution)
        for row in rows:
            if (last := last_execution(row)) is not None:
                executions[last.job_id].append(last)
        for _, entry in map(load_log, self._db.run("logs_of", {"ids": ids})):
            logs[entry.job_id].append(entry)
        return executions, logs

    def put_archive(self, documents: Sequence[ArchivedJob], *, now: datetime | None = None) -> None:
        if not documents:
            return
        columns: dict[str, list[object]] = {
            name: [getattr(document, name) for document in documents]
            for name in (
                "id", "tenant", "task", "queue", "state", "token", "created_at", "finished_at", "correlation_id",
                "parent_id", "tier", "policy", "document", "fingerprint",
            )
        }  # fmt: skip
        self._db.run("put_archive", {"now": now}, columns)

    def archived(self, ids: Collection[UUID], *, tenant: str) -> list[ArchivedJob]:
        if not ids:
            return []
        rows = self._db.run("archived", {"ids": list(ids), "tenant": tenant_of(tenant)})
        return [load_archived(row) for row in rows]

    def forget(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        if not documents:
            return frozenset()
        columns: dict[str, list[object]] = {
            name: [getattr(document, name) for document in documents]
            for name in ("id", "tenant", "token", "finished_at")
        }
        return frozenset(row[0] for row in self._db.run("forget", None, columns))

    def search_archive(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[ArchivedJob]:
        for name in UNARCHIVED:
            if getattr(where, name):
                raise BadFilter(f"archived jobs cannot be searched by {name}; leave it out", field=name)
        takes = filter_takes(where) | page_takes(sort, page_size(limit), after)
        takes["states"] = sorted(where.states) or None
        takes["tiers"] = sorted(where.tiers) or None
        for name in (
            "trouble", "reference_type", "reference_id", "tag", "metadata", "error_group", *_ORIGINS,
        ):  # fmt: skip
            del takes[name]
        rows = self._db.run("search_archive", takes, flags=(sort.value,))
        items = [load_archived(row) for row in rows[:limit]]
        return Page(items, encode_cursor(sort, items[-1].id) if len(rows) > limit else None)

    def remove_archived(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        if not documents:
            return frozenset()
        columns: dict[str, list[object]] = {
            name: [getattr(document, name) for document in documents]
            for name in ("id", "tier", "fingerprint")
        }
        return frozenset(row[0] for row in self._db.run("remove_archived", None, columns))


def _flags(selection: Selection) -> tuple[str, ...]:
    return () if selection.members else ("whole",)


def range_takes(selection: Selection) -> dict[str, object]:
    """A selection as the parameters of the part ``governed``, without its limit."""
    rule, after, until = selection.rule, selection.after, selection.until
    exclude = [
        {
            "states": sorted(other.states),
            "tasks": sorted(other.tasks) or None,
            "tenants": sorted(other.tenants) or None,
        }
        for other in selection.exclude
    ]
    return {
        "states": sorted(rule.states),
        "tasks": sorted(rule.tasks) or None,
        "tenants": sorted(rule.tenants) or None,
        "after_at": after and after.ended_at,
        "after_id": after and after.id,
        "until_at": until and until.ended_at,
        "until_id": until and until.id,
        "exclude": json.dumps(exclude) if exclude else None,
    }
