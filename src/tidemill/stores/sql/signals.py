"""Signals and events in the SQL store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tidemill.domain.filters import page_size
from tidemill.domain.job import Move
from tidemill.domain.signals import (
    MOST_UNREAD,
    EmittedEvent,
    NewSignal,
    Posted,
    SignalFence,
    StoredSignal,
    StoredWait,
    Taken,
)
from tidemill.domain.states import JobState
from tidemill.stores.base import ControlStore
from tidemill.stores.signals import Delivered, EventStore, Receiver, SignalStore, UnreadSignals
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Driver, QueryCall, Row
from tidemill.stores.sql.job_rows import at_most, tenant_of
from tidemill.stores.sql.occurrences import TOPIC, note_events

WOKEN = "a signal or event arrived"
_WAITING = frozenset({JobState.WAITING})


class SqlSignals(SqlPart, ControlStore, SignalStore, EventStore):
    """Signals, waits and events."""

    def post_signals(self, signals: Sequence[NewSignal], *, now: datetime | None = None) -> list[Posted]:
        return write_signals(self._db, signals, now)

    def deliver_signal(self, signal: NewSignal, *, now: datetime | None = None) -> Delivered:
        with self._db.transaction():
            (answer,) = self.post_signals([signal], now=now)
            woken = self.wake_receivers([signal.job_id], now=now) if answer is Posted.ACCEPTED else []
            return Delivered(answer, woken)

    def take_signal(
        self,
        fence: SignalFence,
        names: Collection[str],
        record: str,
        *,
        before: datetime | None = None,
        now: datetime | None = None,
    ) -> Taken:
        takes = {
            **fence._asdict(),
            "names": list(names),
            "record": record,
            "before": before,
            "now": now,
        }
        lost, value = self._db.run("take_signal", takes)[0]
        return Taken(value, lost)

    def signals(self, job_id: UUID, *, tenant: str, after: int = 0, limit: int = 100) -> list[StoredSignal]:
        takes = {"job_id": job_id, "tenant": tenant_of(tenant), "after": after, "limit": page_size(limit)}
        return [StoredSignal(*row) for row in self._db.run("signals", takes)]

    def waits(self, ids: Collection[UUID], *, tenant: str) -> list[StoredWait]:
        if not ids:
            return []
        rows = self._db.run("waits", {"ids": list(ids), "tenant": tenant_of(tenant)})
        return [StoredWait(*row) for row in rows]

    def questions(self, *, tenant: str, after: UUID | None = None, limit: int = 100) -> list[StoredWait]:
        takes = {"tenant": tenant_of(tenant), "after": after, "limit": page_size(limit)}
        return [StoredWait(*row) for row in self._db.run("questions", takes)]

    def wake_receivers(
        self,
        ids: Collection[UUID] | None = None,
        *,
        event_id: UUID | None = None,
        within: timedelta | None = None,
        limit: int = 500,
        now: datetime | None = None,
    ) -> list[Receiver]:
        if ids is not None and not ids:
            return []
        # Most calls find nothing, so the search is not part of the transaction; the move checks the state again.
        rows = self._receivers(ids, event_id, within, at_most(limit), now)
        if not rows:
            return []
        woken = self.move(wakes(rows), now=now)
        return [Receiver(id, queue) for id, _, queue in rows if id in woken]

    def _receivers(
        self,
        ids: Collection[UUID] | None,
        event_id: UUID | None,
        within: timedelta | None,
        limit: int,
        now: datetime | None,
    ) -> list[Row]:
        if ids is not None:
            return self._db.run("receivers", {"ids": list(ids)})
        takes = {"event_id": event_id, "within": within, "limit": limit, "now": now}
        return self._db.run("recent_receivers", takes, flags=("signals",) if event_id is None else ())

    def unread_signals(self) -> UnreadSignals:
        return UnreadSignals(*self._db.run("unread_signals")[0])

    def emit(self, events: Sequence[EmittedEvent], *, now: datetime | None = None) -> frozenset[UUID]:
        if not events:
            return frozenset()
        columns: dict[str, list[Any]] = {
            name: [getattr(event, name) for event in events] for name in EmittedEvent._fields[:-1]
        }
        with self._db.transaction():
            fresh = frozenset(id for (id,) in self._db.run("emit", {"now": now}, columns))
            if note_events(self._db, fresh):
                self._db.notify([TOPIC])
            return fresh

    def events(
        self,
        *,
        tenant: str,
        name: str | None = None,
        match: str | None = None,
        since: datetime | None = None,
        before: tuple[datetime, UUID] | None = None,
        newest: bool = False,
        limit: int = 100,
    ) -> list[EmittedEvent]:
        before_at, before_id = before or (None, None)
        takes = {
            "tenant": tenant_of(tenant),
            "name": name,
            "match": match,
            "since": since,
            "before_at": before_at,
            "before_id": before_id,
            "limit": page_size(limit),
        }
        rows = self._db.run("events", takes, flags=("newest" if newest else "oldest",))
        return [EmittedEvent(*row) for row in rows]

    def drop_events(self, older_than: timedelta, *, limit: int, now: datetime | None = None) -> int:
        takes = {"now": now, "older_than": older_than, "limit": at_most(limit)}
        return len(self._db.run("drop_events", takes))


def write_signals(db: Driver, signals: Sequence[NewSignal], now: datetime | None) -> list[Posted]:
    """Store signals; for ``post_signals``, and for the transactions of users."""
    if not signals:
        return []
    return [Posted(answer) for _, answer in db.run(*signals_call(signals, now))]


def signals_call(signals: Sequence[NewSignal], now: datetime | None) -> QueryCall:
    """The call that stores signals."""
    columns: dict[str, list[Any]] = {
        name: [getattr(signal, name) for signal in signals] for name in NewSignal._fields
    }
    return QueryCall("post_signals", {"now": now, "most": MOST_UNREAD}, columns)


def wakes(rows: Sequence[Row]) -> list[Move]:
    """The moves of suspended jobs, from rows of ``receivers``, to the jobs that are pending."""
    return [Move(id, tenant, _WAITING, JobState.PENDING, WOKEN) for id, tenant, _ in rows]
