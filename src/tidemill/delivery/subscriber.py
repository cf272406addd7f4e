"""Delivery of recorded events to the handlers of durable subscriptions."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from time import monotonic

from tidemill.clock import Clock
from tidemill.delivery.background import LeaseKeeper, pin_of
from tidemill.domain.payload import clip
from tidemill.domain.subscriptions import StoredEvent, StoredSubscription, retry_delay
from tidemill.stores.base import Store
from tidemill.stores.job_events import DelayedEvent
from tidemill.tasks.events import Event, Subscriber

_log = logging.getLogger("tidemill.delivery")

BATCH = 100
"""Events that are read at once."""

_SETTLE = 0.5  # seconds after which handled events are settled, at the latest
_IDLE, _TAKEN = (
    5.0,
    2.0,
)  # seconds until the next look: without events, and while another process has the lease
_LONGEST_ERROR = 500


def event_of(stored: StoredEvent) -> Event:
    """A recorded event as handlers receive it."""
    data = json.loads(stored.data)
    return Event(
        stored.name, stored.at, stored.job_id, stored.task, stored.tenant, stored.state, data, seq=stored.seq
    )


class SubscriptionDuty:
    """Calls the handler of one durable subscription, in one process at a time.

    An event is settled after its handler has returned. If the process dies in between, another one delivers the event
    again. A handler that raises is called again later; until then, later events of the same job wait.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        subscription: StoredSubscription,
        handler: Subscriber,
        process: str,
        closed: Callable[[], bool] = lambda: False,
        *,
        declares: bool = True,
    ) -> None:
        self._store, self._clock = store, clock
        self._subscription, self._handler = subscription, handler
        self._closed = closed
        self._stored = not declares
        self.keeper = LeaseKeeper(store, clock, f"events/{subscription.name}", process)

    def step(self, *, force: bool = False) -> float:
        """Deliver the events that are due."""
        self._declare()
        if not self.keeper.take():
            return _TAKEN
        while events := self._store.waiting_events(
            self._subscription.name, limit=BATCH, now=pin_of(self._clock)
        ):
            self._deliver(events)
            self.keeper.note()
            if self._closed() or not self.keeper.held:
                return 0.0
        self.keeper.note()
        return _IDLE

    def _declare(self) -> None:
        """Store the subscription, so that processes with other code record its events too."""
        if self._stored:
            return
        setting = self._subscription.setting()
        values = {stored.key: stored.value for stored in self._store.settings()}
        if values.get(setting.key) != setting.value:
            self._store.put_settings([setting], now=pin_of(self._clock))
            self._store.settings()
            self._store.notify(["change"])
        self._stored = True

    def _deliver(self, events: list[StoredEvent]) -> None:
        handled: list[int] = []
        blocked = set()
        settled_at = monotonic()
        for stored in events:
            if stored.job_id in blocked:
                continue
            if self._closed() or not self.keeper.held:
                break
            if self._handle(stored):
                handled.append(stored.seq)
            elif stored.job_id is not None:
                blocked.add(stored.job_id)
            if monotonic() - settled_at > _SETTLE:
                self._store.settle_events(handled)
                handled, settled_at = [], monotonic()
        self._store.settle_events(handled)

    def _handle(self, stored: StoredEvent) -> bool:
        """Call the handler; whether it succeeded. After a failure the event waits."""
        try:
            self._handler(event_of(stored))
        except Exception as error:  # noqa: BLE001  (a failing handler must not affect other events)
            _log.exception("the subscription %s failed for %s", stored.subscription, stored.name)
            words = clip(f"{type(error).__name__}: {error}", _LONGEST_ERROR)
            delayed = DelayedEvent(stored.seq, retry_delay(stored.attempts + 1), words)
            self._store.delay_events([delayed], now=pin_of(self._clock))
            return False
        return True
