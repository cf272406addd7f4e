"""``app.subscriptions``: durable and live subscriptions of a store, and the events that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from tidemill.client._base import StoreApi, async_twin
from tidemill.client.access import note
from tidemill.delivery.background import BackgroundDuty, perform_all
from tidemill.delivery.live import LiveHub, LiveSubscription
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.subscriptions import SETTING, EventBacklog
from tidemill.errors import SubscriptionNotFound
from tidemill.tasks.events import Subscriber

if TYPE_CHECKING:
    from tidemill.client.core import Client


WATCHED = ("job.*", "alert.*")
"""The events that watchers receive."""


class SubscriptionStatus(NamedTuple):
    """A subscription and its backlog."""

    name: str
    on: tuple[str, ...]
    statuses: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    until: datetime | None  #: when a live subscription ends unless it is renewed
    waiting: int
    failing: int  #: events whose handler failed at least once
    oldest_at: datetime | None
    last_error: str | None


class Subscriptions(StoreApi):
    """The subscriptions of a store. Every method has an asynchronous twin with the prefix ``a``."""

    def __init__(self, client: Client, duties: Callable[[], Sequence[BackgroundDuty]] = lambda: ()) -> None:
        super().__init__(client)
        self._duties = duties
        self._hub = LiveHub(self._live)

    def _live(self, handler: Subscriber) -> LiveSubscription:
        live = LiveSubscription(self._store, self._client.clock, WATCHED, handler)
        self._client.live.add(live)
        return live

    def watch(self, handler: Subscriber) -> Callable[[], None]:
        """Call the handler with the events of jobs and alerts of all processes; call the returned function to end that.

        All watchers of a process share one live subscription, so another one costs the store nothing.
        """
        return self._hub.watch(handler)

    def list(self) -> Sequence[SubscriptionStatus]:
        """Return all subscriptions by name, with the number of events that wait for each."""
        self._store.settings()
        backlogs = {backlog.subscription: backlog for backlog in self._store.event_backlogs()}
        subscriptions = {subscription.name: subscription for subscription in self._store.subscriptions}
        rows = []
        for name in sorted({*subscriptions, *backlogs}):
            backlog = backlogs.get(name, EventBacklog(name, 0, 0, None))
            subscription = subscriptions.get(name)
            states = None if subscription is None else subscription.states
            rows.append(
                SubscriptionStatus(
                    name,
                    () if subscription is None else subscription.patterns,
                    None if states is None else tuple(sorted(states)),
                    None if subscription is None else subscription.tasks,
                    None if subscription is None else subscription.until,
                    *backlog[1:],
                )
            )
        return rows

    alist = async_twin(list)  # noqa: A003  (the method above)

    def remove(self, name: str) -> int:
        """End a subscription that no code declares, and delete its events. Returns their number."""
        with self._store.transaction():
            dropped = self._store.drop_settings([SETTING + name])
            events = self._store.drop_subscription(name)
            if not dropped and not events:
                raise SubscriptionNotFound(
                    f"there is no subscription {name!r}; see tidemill subscriptions list", name=name
                )
            note(
                self._store,
                "subscription.removed",
                f"subscription:{name}",
                ALL_TENANTS,
                after={"events": events},
                now=self._pin,
            )
        self._store.settings()
        self._tell(["change"])
        return events

    aremove = async_twin(remove)

    def deliver(self) -> None:
        """Deliver the waiting events now, in this thread: for tests, scripts and hosts without a worker.

        Handlers of this app's durable subscriptions are called, and notifications are enqueued without waiting for more
        events. A subscription that another process is delivering is left to it.
        """
        perform_all(self._duties())

    adeliver = async_twin(deliver)
