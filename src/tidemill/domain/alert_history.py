"""The history of alerts: when each was opened, acknowledged and recovered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.alerts import Alert, Severity

KEPT = timedelta(days=90)
"""How long a recovered alert stays in the history."""

OPENED, RECOVERED = "alert.opened", "alert.recovered"


class NewAlert(NamedTuple):
    """An alert to open."""

    id: UUID
    code: str
    subject: str
    severity: str
    text: str
    value: float
    threshold: float
    since: datetime | None = None


class SeenAlert(NamedTuple):
    """The latest figures of an open alert."""

    id: UUID
    severity: str
    text: str
    value: float


@dataclass(frozen=True, slots=True)
class StoredAlert:
    """An alert with its history. An alert without ``recovered_at`` is open."""

    id: UUID
    code: str
    subject: str  #: the queue, lease, schedule or limit that it concerns; empty for the whole system
    severity: str
    text: str
    value: float
    threshold: float
    since: datetime | None
    opened_at: datetime
    seen_at: datetime
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    recovered_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """Whether the condition still holds."""
        return self.recovered_at is None


class AlertChanges(NamedTuple):
    """The writes that bring the stored alerts up to date."""

    opened: tuple[NewAlert, ...]
    seen: tuple[SeenAlert, ...]
    recovered: tuple[StoredAlert, ...]


def compare(
    stored: Iterable[StoredAlert], raised: Sequence[Alert], new_id: Callable[[], UUID]
) -> AlertChanges:
    """Compare the open alerts with those that hold now.

    An alert is identified by its code and subject: it opens once, however often it is evaluated, and recovers once.
    """
    held = {(alert.code, alert.subject): alert for alert in stored if alert.is_open}
    opened: dict[tuple[str, str], NewAlert] = {}
    seen: dict[tuple[str, str], SeenAlert] = {}
    for alert in raised:
        key = (alert.code, alert.subject or "")
        if key in opened or key in seen:
            continue
        if key in held:
            seen[key] = SeenAlert(held[key].id, alert.severity.value, alert.text, alert.value)
        else:
            opened[key] = NewAlert(
                new_id(), *key, alert.severity.value, alert.text, alert.value, alert.threshold, alert.since
            )
    recovered = [alert for key, alert in held.items() if key not in seen]
    return AlertChanges(tuple(opened.values()), tuple(seen.values()), tuple(recovered))


def is_critical(severity: str) -> bool:
    """Whether an alert of this severity is sent during quiet hours."""
    return severity == Severity.CRITICAL.value
