"""Logs, checkpoints and the audit log in the SQL store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.filters import page_size
from tidemill.domain.job import Checkpoint, LogEntry
from tidemill.domain.records import GENESIS, AuditEntry, AuditRecord, audit_hash
from tidemill.stores.access import AuditStore
from tidemill.stores.base import RecordStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.job_rows import dump_mapping, load_mapping, tenant_of


class SqlRecords(SqlPart, RecordStore, AuditStore):
    """log, save_checkpoints, checkpoints, record, audit, audit_gaps."""

    def log(self, entries: Sequence[LogEntry]) -> frozenset[UUID]:
        if not entries:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "job_id": [entry.job_id for entry in entries],
            "number": [entry.number for entry in entries],
            "worker": [entry.worker for entry in entries],
            "at": [entry.at for entry in entries],
            "level": [entry.level for entry in entries],
            "stage": [entry.stage for entry in entries],
            "message": [entry.message for entry in entries],
            "details": [dump_mapping(entry.details) for entry in entries],
            "duration": [entry.duration for entry in entries],
        }
        return frozenset(row[0] for row in self._db.run("log", None, columns))

    def save_checkpoints(
        self, entries: Sequence[Checkpoint], *, now: datetime | None = None
    ) -> frozenset[UUID]:
        if not entries:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "job_id": [entry.job_id for entry in entries],
            "number": [entry.number for entry in entries],
            "worker": [entry.worker for entry in entries],
            "name": [entry.name for entry in entries],
            "value": [entry.value for entry in entries],
        }
        return frozenset(row[0] for row in self._db.run("save_checkpoints", {"now": now}, columns))

    def checkpoints(self, id: UUID, *, tenant: str) -> dict[str, str]:
        return dict(self._db.run("checkpoints", {"id": id, "tenant": tenant_of(tenant)}))

    def record(self, entries: Sequence[AuditEntry], *, now: datetime | None = None) -> list[AuditRecord]:
        if not entries:
            return []
        with self._db.transaction():
            self._db.run("lock_audit")
            at = self._time(now)
            number, previous = next(iter(self._db.run("last_audit")), (0, GENESIS))
            records: list[AuditRecord] = []
            for entry in entries:
                number += 1
                previous = audit_hash(previous, number, at, entry)
                records.append(AuditRecord(number, at, entry, previous))
            columns: dict[str, list[Any]] = {
                "number": [record.number for record in records],
                "at": [record.at for record in records],
                "tenant": [entry.tenant for entry in entries],
                "who": [entry.who for entry in entries],
                "action": [entry.action for entry in entries],
                "subject": [entry.subject for entry in entries],
                "before": [dump_mapping(entry.before) for entry in entries],
                "after": [dump_mapping(entry.after) for entry in entries],
                "hash": [record.hash for record in records],
            }
            self._db.run("record", None, columns)
        return records

    def audit(
        self,
        *,
        tenant: str,
        after: int = 0,
        before: int | None = None,
        who: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        newest: bool = False,
        limit: int = 1000,
    ) -> list[AuditRecord]:
        takes = {
            "tenant": tenant_of(tenant),
            "after": after,
            "before": before,
            "who": who,
            "action": action,
            "subject": subject,
            "limit": page_size(limit),
        }
        rows = self._db.run("audit", takes, flags=("newest" if newest else "oldest",))
        return [
            AuditRecord(
                number,
                at,
                AuditEntry(by, act, thing, owner, load_mapping(earlier), load_mapping(later)),
                digest,
            )
            for number, at, owner, by, act, thing, earlier, later, digest in rows
        ]

    def audit_gaps(self) -> list[str]:
        return [row[0] for row in self._db.run("audit_gaps")]
