"""Job control in the SQL store: moves, cancel requests and deletion."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import outcome_of
from tidemill.domain.job import Change, Move
from tidemill.domain.join_counts import Ended
from tidemill.domain.records import Setting
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.subscriptions import TOPIC, row_event, wants_any
from tidemill.stores.base import ControlStore
from tidemill.stores.sql.driver import QueryCall
from tidemill.stores.sql.job_events import SqlJobEvents
from tidemill.stores.sql.job_rows import tenant_of
from tidemill.stores.sql.join_counts import JoinCounts
from tidemill.stores.sql.occurrences import TOPIC as OCCURRENCES
from tidemill.stores.sql.occurrences import note_ends


class SqlControl(SqlJobEvents, JoinCounts, ControlStore):
    """move, change, request_cancel, delete."""

    def move(self, moves: Sequence[Move], *, now: datetime | None = None) -> frozenset[UUID]:
        if not moves:
            return frozenset()
        if not any(item.state in ENDED or item.expect & ENDED for item in moves):
            # No move ends a job or reopens one, so there is nothing to count.
            return self._moved(moves, now)
        with self._db.transaction():
            blocked = self._retake_keys([item for item in moves if item.expect & ENDED], now)
            free = [item for item in moves if item.id not in blocked]
            if not free:
                return frozenset()
            self._read_subscriptions(free)
            rows = self._db.run("lock_unheld", {"ids": [item.id for item in free]})
            tied = {id: JobState(state) for id, state, counts in rows if counts}
            changed = self._moved(free, now)
            ends = [end for item in free if item.id in changed and (end := _end(item, tied)) is not None]
            if ends:
                self._count_ends(ends, now)
                if note_ends(self._db, ends, now):
                    self.notify([OCCURRENCES])
            self._append_moves(free, changed, now)
            return changed

    def _read_subscriptions(self, moves: Sequence[Move]) -> None:
        """Read the subscriptions, unless that was a moment ago: a process that only acts on jobs reads no settings."""
        if not self.knows_subscriptions() and any(item.event_name for item in moves):
            self.learn_subscriptions(
                Setting(key, json.loads(value)) for key, value, *_ in self._db.run("settings")
            )

    def _append_moves(self, moves: Sequence[Move], changed: frozenset[UUID], now: datetime | None) -> None:
        named = {
            item.id: item
            for item in moves
            if item.id in changed and item.event_name and wants_any(self.subscriptions, item.event_name)
        }
        if not named:
            return
        rows = self._jobs(self._db.run("get", {"ids": list(named), "tenant": tenant_of(ALL_TENANTS)}))
        events = [row_event(named[job.id].event_name, job, named[job.id].event_data) for job in rows]
        if self.append_events(events, now=now):
            self.notify([TOPIC])

    def _moved(self, moves: Sequence[Move], now: datetime | None) -> frozenset[UUID]:
        return frozenset(row[0] for row in self._db.run(*move_call(moves, now)))

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


def _end(item: Move, tied: Mapping[UUID, JobState]) -> Ended | None:
    """The end that a move of a tied job writes or takes back."""
    before = tied.get(item.id)
    if before is None:
        return None
    if before in ENDED:
        return Ended(item.id, outcome_of(before), back=True)
    return Ended(item.id, outcome_of(item.state)) if item.state in ENDED else None


def move_call(moves: Sequence[Move], now: datetime | None) -> QueryCall:
    """The call that applies these moves. It counts no ends."""
    columns: dict[str, list[Any]] = {
        "id": [item.id for item in moves],
        "tenant": [item.tenant for item in moves],
        "expect": [_words(item) for item in moves],
        "to_state": [item.state for item in moves],
        "reason": [item.reason for item in moves],
        "delay": [item.delay for item in moves],
        "restart": [item.restart for item in moves],
        "result": [item.result for item in moves],
        "lets_go": [item.lets_go for item in moves],
    }
    return QueryCall("move", {"now": now}, columns)


def _words(item: Move | Change) -> str:
    return ",".join(sorted(item.expect))
