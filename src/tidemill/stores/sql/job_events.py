"""Recorded events and the history of alerts in the SQL store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tidemill.domain.alert_history import NewAlert, SeenAlert, StoredAlert
from tidemill.domain.filters import page_size
from tidemill.domain.job import Finish
from tidemill.domain.states import JobState
from tidemill.domain.subscriptions import EventBacklog, NewEvent, StoredEvent, finish_events, route
from tidemill.stores.job_events import AlertStore, DelayedEvent, JobEventStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.job_rows import at_most


class SqlJobEvents(SqlPart, JobEventStore):
    """append_events, waiting_events, settle_events, delay_events, event_backlogs, drop_subscription."""

    def append_events(self, events: Sequence[NewEvent], *, now: datetime | None = None) -> int:
        rows = route(self.subscriptions, events)
        if not rows:
            return 0
        columns: dict[str, list[Any]] = {
            "subscription": [name for name, _ in rows],
            **{name: [getattr(event, name) for _, event in rows] for name in NewEvent._fields},
        }
        self._db.run("append_events", {"now": now}, columns)
        return len(rows)

    def _append_finishes(
        self, finishes: Iterable[Finish], lost: frozenset[UUID], now: datetime | None
    ) -> None:
        """Record the events of accepted finishes, with the states that their jobs really have."""
        accepted = [item for item in finishes if item.claim.id not in lost]
        unsure = [item.claim.id for item in accepted if item.transition.on_cancel is not None]
        rows = self._db.run("job_states", {"ids": unsure}) if unsure else []
        states = {id: JobState(state) for id, state, _ in rows}
        self.append_events(
            [
                event
                for item in accepted
                for event in finish_events(item, states.get(item.claim.id, item.transition.state))
            ],
            now=now,
        )

    def waiting_events(
        self, subscription: str, *, limit: int = 500, now: datetime | None = None
    ) -> list[StoredEvent]:
        takes = {"now": now, "subscription": subscription, "limit": at_most(limit)}
        return [StoredEvent(*row) for row in self._db.run("waiting_events", takes)]

    def settle_events(self, seqs: Collection[int]) -> frozenset[int]:
        if not seqs:
            return frozenset()
        return frozenset(row[0] for row in self._db.run("settle_events", {"seqs": list(seqs)}))

    def delay_events(self, events: Sequence[DelayedEvent], *, now: datetime | None = None) -> None:
        if events:
            columns: dict[str, list[Any]] = {
                name: [getattr(event, name) for event in events] for name in DelayedEvent._fields
            }
            self._db.run("delay_events", {"now": now}, columns)

    def event_backlogs(self) -> list[EventBacklog]:
        return [EventBacklog(*row) for row in self._db.run("event_backlogs")]

    def drop_subscription(self, subscription: str) -> int:
        return len(self._db.run("drop_subscription", {"subscription": subscription}))


class SqlAlerts(SqlPart, AlertStore):
    """open_alerts, see_alerts, recover_alerts, acknowledge_alerts, stored_alerts, drop_alerts."""

    def open_alerts(self, alerts: Sequence[NewAlert], *, now: datetime | None = None) -> frozenset[UUID]:
        if not alerts:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "since_at" if name == "since" else name: [getattr(alert, name) for alert in alerts]
            for name in NewAlert._fields
        }
        return frozenset(row[0] for row in self._db.run("open_alerts", {"now": now}, columns))

    def see_alerts(self, alerts: Sequence[SeenAlert], *, now: datetime | None = None) -> frozenset[UUID]:
        if not alerts:
            return frozenset()
        columns: dict[str, list[Any]] = {
            name: [getattr(alert, name) for alert in alerts] for name in SeenAlert._fields
        }
        return frozenset(row[0] for row in self._db.run("see_alerts", {"now": now}, columns))

    def recover_alerts(self, ids: Collection[UUID], *, now: datetime | None = None) -> frozenset[UUID]:
        if not ids:
            return frozenset()
        return frozenset(row[0] for row in self._db.run("recover_alerts", {"now": now, "ids": list(ids)}))

    def acknowledge_alerts(
        self, ids: Collection[UUID], *, by: str, now: datetime | None = None
    ) -> frozenset[UUID]:
        if not ids:
            return frozenset()
        takes = {"now": now, "ids": list(ids), "who": by}
        return frozenset(row[0] for row in self._db.run("acknowledge_alerts", takes))

    def stored_alerts(
        self, *, recovered: bool | None = None, before: datetime | None = None, limit: int = 100
    ) -> list[StoredAlert]:
        flags = () if recovered is None else ("is_over",) if recovered else ("is_open",)
        takes = {"before": before, "limit": page_size(limit)}
        return [StoredAlert(*row) for row in self._db.run("stored_alerts", takes, flags=flags)]

    def drop_alerts(self, older_than: timedelta, *, now: datetime | None = None) -> int:
        return len(self._db.run("drop_alerts", {"now": now, "older_than": older_than}))
