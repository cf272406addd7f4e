"""Recorded events and the history of alerts in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.alert_history import NewAlert, SeenAlert, StoredAlert
from tidemill.domain.filters import page_size
from tidemill.domain.subscriptions import TOPIC, EventBacklog, NewEvent, StoredEvent, route
from tidemill.stores.job_events import AlertStore, DelayedEvent, JobEventStore
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import EventRow, State


class MemoryJobEvents(MemoryPart, JobEventStore):
    """Events by number."""

    def append_events(self, events: Sequence[NewEvent], *, now: datetime | None = None) -> int:
        rows = route(self.subscriptions, events)
        with self._open() as state:
            moment = self._at(now)
            for subscription, event in rows:
                state.last_event += 1
                stored = StoredEvent(
                    state.last_event, subscription, event.name, moment, *event[1:5], event.data
                )
                state.job_events[stored.seq] = EventRow(stored, moment)
        if rows:
            self._bell.ring([TOPIC])
        return len(rows)

    def waiting_events(
        self, subscription: str, *, limit: int = 500, now: datetime | None = None
    ) -> list[StoredEvent]:
        with self._open() as state:
            moment = self._at(now)
            blocked: set[UUID | None] = set()
            due: list[StoredEvent] = []
            for row in state.job_events.values():
                event = row.event
                if event.subscription != subscription or event.job_id in blocked:
                    continue
                if row.due_at <= moment:
                    due.append(event)
                elif event.job_id is not None:
                    blocked.add(event.job_id)
            return due[: max(limit, 0)]

    def settle_events(self, seqs: Collection[int]) -> frozenset[int]:
        with self._open() as state:
            return frozenset(seq for seq in set(seqs) if state.job_events.pop(seq, None) is not None)

    def delay_events(self, events: Sequence[DelayedEvent], *, now: datetime | None = None) -> None:
        with self._open() as state:
            moment = self._at(now)
            for delayed in events:
                row = state.job_events.get(delayed.seq)
                if row is not None:
                    event = row.event._replace(attempts=row.event.attempts + 1)
                    state.job_events[delayed.seq] = EventRow(event, moment + delayed.delay, delayed.error)

    def event_backlogs(self) -> list[EventBacklog]:
        with self._open() as state:
            names = sorted({row.event.subscription for row in state.job_events.values()})
            return [_backlog(state, name) for name in names]

    def drop_subscription(self, subscription: str) -> int:
        with self._open() as state:
            seqs = [seq for seq, row in state.job_events.items() if row.event.subscription == subscription]
            for seq in seqs:
                del state.job_events[seq]
            return len(seqs)


def _backlog(state: State, name: str) -> EventBacklog:
    rows = [row for row in state.job_events.values() if row.event.subscription == name]
    failing = sorted((row for row in rows if row.event.attempts), key=lambda row: row.due_at)
    return EventBacklog(
        name,
        len(rows),
        len(failing),
        min(row.event.at for row in rows),
        failing[-1].error if failing else None,
    )


class MemoryAlerts(MemoryPart, AlertStore):
    """Alerts by id."""

    def open_alerts(self, alerts: Sequence[NewAlert], *, now: datetime | None = None) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            opened = set()
            for alert in alerts:
                held = {(known.code, known.subject) for known in state.alerts.values() if known.is_open}
                if (alert.code, alert.subject) not in held and alert.id not in state.alerts:
                    state.alerts[alert.id] = StoredAlert(*alert, moment, moment)
                    opened.add(alert.id)
            return frozenset(opened)

    def see_alerts(self, alerts: Sequence[SeenAlert], *, now: datetime | None = None) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            seen = [alert for alert in alerts if _is_open(state, alert.id)]
            for alert in seen:
                state.alerts[alert.id] = replace(
                    state.alerts[alert.id],
                    severity=alert.severity,
                    text=alert.text,
                    value=alert.value,
                    seen_at=moment,
                )
            return frozenset(alert.id for alert in seen)

    def recover_alerts(self, ids: Collection[UUID], *, now: datetime | None = None) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            ended = frozenset(id for id in ids if _is_open(state, id))
            for id in ended:
                state.alerts[id] = replace(state.alerts[id], recovered_at=moment)
            return ended

    def acknowledge_alerts(
        self, ids: Collection[UUID], *, by: str, now: datetime | None = None
    ) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            changed = frozenset(
                id for id in ids if _is_open(state, id) and state.alerts[id].acknowledged_at is None
            )
            for id in changed:
                state.alerts[id] = replace(state.alerts[id], acknowledged_at=moment, acknowledged_by=by)
            return changed

    def stored_alerts(
        self, *, recovered: bool | None = None, before: datetime | None = None, limit: int = 100
    ) -> list[StoredAlert]:
        size = page_size(limit)
        with self._open() as state:
            chosen = [
                alert
                for alert in state.alerts.values()
                if recovered in (None, not alert.is_open) and (before is None or alert.opened_at < before)
            ]
            chosen.sort(key=lambda alert: (alert.opened_at, alert.id), reverse=True)
            return chosen[:size]

    def drop_alerts(self, older_than: timedelta, *, now: datetime | None = None) -> int:
        with self._open() as state:
            limit = self._at(now) - older_than
            old = [
                alert.id
                for alert in state.alerts.values()
                if alert.recovered_at is not None and alert.recovered_at < limit
            ]
            for id in old:
                del state.alerts[id]
            return len(old)


def _is_open(state: State, id: UUID) -> bool:
    alert = state.alerts.get(id)
    return alert is not None and alert.is_open
