"""The part of the store contract for recorded events and the history of alerts.

Law 35 (events): the store writes an event for every subscription that wants it, in the transaction of the change that
causes it: ``enqueue``, ``finish`` and ``step``, and every ``move`` with an ``event``. Without subscriptions it writes
nothing. An event stays until its subscription settles it. The events of one job are returned in the order of their
changes, and an event that was put off holds back the later ones of its job.

Law 36 (alerts): at most one open alert has the same code and subject. A recovered alert never changes again, except
that it can be deleted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.alert_history import NewAlert, SeenAlert, StoredAlert
from tidemill.domain.subscriptions import EventBacklog, NewEvent, StoredEvent
from tidemill.stores.subscription_cache import SubscriptionCache


class DelayedEvent(NamedTuple):
    """An event whose handler failed: it is due again after the delay."""

    seq: int
    delay: timedelta
    error: str


class JobEventStore(SubscriptionCache, ABC):
    """Recorded events, one row for each subscription."""

    @abstractmethod
    def append_events(self, events: Sequence[NewEvent], *, now: datetime | None = None) -> int:
        """Record events for every subscription that wants them. Returns the number of rows written."""

    @abstractmethod
    def waiting_events(
        self, subscription: str, *, limit: int = 500, now: datetime | None = None
    ) -> list[StoredEvent]:
        """Events of a subscription that are due, in their order; without those behind a delayed one of their job."""

    @abstractmethod
    def settle_events(self, seqs: Collection[int]) -> frozenset[int]:
        """Delete events that were handled. Returns those that existed."""

    @abstractmethod
    def delay_events(self, events: Sequence[DelayedEvent], *, now: datetime | None = None) -> None:
        """Count a failed attempt of each event, and let it wait."""

    @abstractmethod
    def event_backlogs(self) -> list[EventBacklog]:
        """The number of waiting events of each subscription that has any, by name."""

    @abstractmethod
    def drop_subscription(self, subscription: str) -> int:
        """Delete all waiting events of a subscription. Returns their number."""


class AlertStore(ABC):
    """Alerts that were raised, and when they recovered."""

    @abstractmethod
    def open_alerts(self, alerts: Sequence[NewAlert], *, now: datetime | None = None) -> frozenset[UUID]:
        """Insert alerts, each unless one with its code and subject is open. Returns the ids of those inserted."""

    @abstractmethod
    def see_alerts(self, alerts: Sequence[SeenAlert], *, now: datetime | None = None) -> frozenset[UUID]:
        """Update the severity, text and value of open alerts. Returns the ids of those that are open."""

    @abstractmethod
    def recover_alerts(self, ids: Collection[UUID], *, now: datetime | None = None) -> frozenset[UUID]:
        """End open alerts. Returns the ids of those that were open."""

    @abstractmethod
    def acknowledge_alerts(
        self, ids: Collection[UUID], *, by: str, now: datetime | None = None
    ) -> frozenset[UUID]:
        """Note the first person who acknowledges each open alert. Returns the ids that changed."""

    @abstractmethod
    def stored_alerts(
        self, *, recovered: bool | None = None, before: datetime | None = None, limit: int = 100
    ) -> list[StoredAlert]:
        """Alerts opened before an instant, the newest first; only open ones if ``recovered`` is false."""

    @abstractmethod
    def drop_alerts(self, older_than: timedelta, *, now: datetime | None = None) -> int:
        """Delete alerts that recovered longer ago than that. Returns the number."""
