"""Job control in the SQL store: moves, cancel requests and deletion."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.job import Change, Move
from tidemill.domain.states import ENDED
from tidemill.stores.base import ControlStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.job_rows import tenant_of


class SqlControl(SqlPart, ControlStore):
    """move, change, request_cancel, delete."""

    def move(self, moves: Sequence[Move], *, now: datetime | None = None) -> frozenset[UUID]:
        if not moves:
            return frozenset()
        with self._db.transaction():
            blocked = self._retake_keys([item for item in moves if item.expect & ENDED], now)
            free = [item for item in moves if item.id not in blocked]
            if not free:
                return frozenset()
            columns: dict[str, list[Any]] = {
                "id": [item.id for item in free],
                "tenant": [item.tenant for item in free],
                "expect": [_words(item) for item in free],
                "to_state": [item.state for item in free],
                "reason": [item.reason for item in free],
                "delay": [item.delay for item in free],
                "restart": [item.restart for item in free],
                "result": [item.result for item in free],
                "lets_go": [item.lets_go for item in free],
            }
            return frozenset(row[0] for row in self._db.run("move", {"now": now}, columns))

    def _retake_keys(self, moves: Sequence[Move], now: datetime | None) -> frozenset[UUID]:
        """Let ended jobs that are about to be reopened take their unique keys again. Returns those whose key is held."""
        if not moves:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "id": [item.id for item in moves],
            "tenant": [item.tenant for item in moves],
            "expect": [_words(item) for item in moves],
        }
        return frozenset(row[0] for row in self._db.run("retake_keys", {"now": now}, columns))

    def change(self, changes: Sequence[Change]) -> frozenset[UUID]:
        if not changes:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "id": [item.id for item in changes],
            "tenant": [item.tenant for item in changes],
            "expect": [_words(item) for item in changes],
            "queue": [item.queue for item in changes],
            "priority": [item.priority for item in changes],
        }
        return frozenset(row[0] for row in self._db.run("change", None, columns))

    def request_cancel(self, ids: Collection[UUID], *, tenant: str, reason: str) -> frozenset[UUID]:
        if not ids:
            return frozenset()
        takes = {"ids": list(ids), "tenant": tenant_of(tenant), "reason": reason}
        return frozenset(row[0] for row in self._db.run("request_cancel", takes))

    def delete(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        if not ids:
            return frozenset()
        takes = {"ids": list(ids), "tenant": tenant_of(tenant)}
        return frozenset(row[0] for row in self._db.run("delete", takes))


def _words(item: Move | Change) -> str:
    return ",".join(sorted(item.expect))
