"""Rows with sealed values in the SQL store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from tidemill.domain.sealed_values import SealChange, SealedPlace, SealedRow
from tidemill.stores.seals import SealStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import QueryCall, Takes

_FIRST = UUID(int=0)
_NAMED = frozenset({"checkpoints", "definition_versions"})
_PAGES: dict[SealedPlace, Callable[[Takes], QueryCall]] = {
    "jobs": lambda takes: QueryCall("sealed_jobs", takes),
    "checkpoints": lambda takes: QueryCall("sealed_checkpoints", takes),
    "definitions": lambda takes: QueryCall("sealed_definitions", takes),
    "definition_versions": lambda takes: QueryCall("sealed_definition_versions", takes),
}
_CHANGES: dict[str, Callable[[Takes], QueryCall]] = {
    "ready.args": lambda takes: QueryCall("reseal_ready_args", takes),
    "scheduled.args": lambda takes: QueryCall("reseal_scheduled_args", takes),
    "running.args": lambda takes: QueryCall("reseal_running_args", takes),
    "parked.args": lambda takes: QueryCall("reseal_parked_args", takes),
    "parked.result": lambda takes: QueryCall("reseal_parked_result", takes),
    "history.args": lambda takes: QueryCall("reseal_history_args", takes),
    "history.result": lambda takes: QueryCall("reseal_history_result", takes),
    "checkpoints": lambda takes: QueryCall("reseal_checkpoints", takes),
    "definitions": lambda takes: QueryCall("reseal_definitions", takes),
    "definition_versions": lambda takes: QueryCall("reseal_definition_versions", takes),
}
"""The statement for each table; for a job also for its column. Only parked and ended jobs have results."""


class SqlSeals(SqlPart, SealStore):
    """sealed_rows, reseal."""

    def sealed_rows(self, place: SealedPlace, after: tuple[UUID, str] | None, limit: int) -> list[SealedRow]:
        id, name = after or (_FIRST, "")
        named = {"name": name} if place in _NAMED else {}
        rows = self._db.run(*_PAGES[place]({"after": id, "limit": limit, **named}))
        return [SealedRow(place, *row) for row in rows]

    def reseal(self, changes: Sequence[SealChange]) -> int:
        if not changes:
            return 0
        # In one order, so that two rotations at a time cannot wait for each other.
        ordered = sorted(changes, key=lambda change: (change.row.place, change.row.cursor, change.column))
        # One transaction, which is repeated after a deadlock: workers lock the rows in the order of their claims.
        return sum(map(len, self._db.run_together([_call(change) for change in ordered])))


def _call(change: SealChange) -> QueryCall:
    row = change.row
    named = {"name": row.name} if row.place in _NAMED else {}
    takes = {"id": row.id, "old": change.old, "new": change.new, **named}
    return _CHANGES[_target(change)](takes)


def _target(change: SealChange) -> str:
    """The table of the change; for a job also the column."""
    return f"{change.row.part}.{change.column}" if change.row.place == "jobs" else change.row.place
