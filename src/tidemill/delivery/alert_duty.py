"""Evaluation of the alert rules, once a minute in one process, with a history in the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta

from tidemill.clock import Clock
from tidemill.delivery.background import LeaseKeeper, pin_of
from tidemill.domain.alert_history import (
    KEPT,
    OPENED,
    RECOVERED,
    AlertChanges,
    NewAlert,
    StoredAlert,
    compare,
)
from tidemill.domain.alerts import Alert
from tidemill.domain.subscriptions import TOPIC, NewEvent
from tidemill.ids import new_id
from tidemill.stores.base import Store

LEASE = "alerts"
"""The lease of the process that evaluates the alerts."""

EVERY = timedelta(seconds=60)
"""The default time between two evaluations."""

_CLEAN = timedelta(hours=6).total_seconds()
_MOST_OPEN = 1_000
_TAKEN = 5.0


class AlertDuty:
    """Opens and recovers alerts, and records an event of each change."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        raised: Callable[[], Sequence[Alert]],
        process: str,
        *,
        every: timedelta = EVERY,
    ) -> None:
        self._store, self._clock, self._raised = store, clock, raised
        self._every = every.total_seconds()
        # A worker that has just started sees queues that it is about to serve.
        self._due = clock.monotonic() + self._every / 3
        self._clean_at = clock.monotonic() + self._every
        self.keeper = LeaseKeeper(store, clock, LEASE, process)

    def step(self, *, force: bool = False) -> float:
        """Evaluate the rules if that is due."""
        now = self._clock.monotonic()
        if not force and now < self._due:
            self.keeper.note()
            return self._due - now
        if not self.keeper.take():
            return _TAKEN
        self.evaluate()
        if now >= self._clean_at:
            self._store.drop_alerts(KEPT, now=pin_of(self._clock))
            self._clean_at = now + _CLEAN
        self.keeper.note()
        self._due = now + self._every
        return self._every

    def evaluate(self) -> AlertChanges:
        """Compare the alerts that hold now with the open ones, and write the difference."""
        raised = self._raised()
        pin = pin_of(self._clock)
        with self._store.transaction():
            stored = self._store.stored_alerts(recovered=False, limit=_MOST_OPEN)
            changes = compare(stored, raised, new_id)
            opened = self._store.open_alerts(changes.opened, now=pin)
            self._store.see_alerts(changes.seen, now=pin)
            ended = self._store.recover_alerts([alert.id for alert in changes.recovered], now=pin)
            events = [alert_event(OPENED, alert) for alert in changes.opened if alert.id in opened]
            events += [alert_event(RECOVERED, alert) for alert in changes.recovered if alert.id in ended]
            written = self._store.append_events(events, now=pin)
        if written:
            self._store.notify([TOPIC])
        return changes


def alert_event(name: str, alert: NewAlert | StoredAlert) -> NewEvent:
    """The event of an alert that opens or recovers. Its state is the severity."""
    data = {
        "alert_id": str(alert.id),
        "code": alert.code,
        "subject": alert.subject,
        "severity": alert.severity,
        "text": alert.text,
        "value": alert.value,
        "threshold": alert.threshold,
    }
    return NewEvent(name, None, None, None, alert.severity, json.dumps(data, ensure_ascii=False))
