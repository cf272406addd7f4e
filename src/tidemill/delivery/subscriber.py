"""Delivery of recorded events to the handlers of durable subscriptions."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta
from time import monotonic
from uuid import UUID

from tidemill.clock import Clock
from tidemill.delivery.background import LeaseKeeper, pin_of
from tidemill.delivery.batch_handler import BatchHandler
from tidemill.domain.payload import clip
from tidemill.domain.subscriptions import StoredEvent, StoredSubscription, retry_delay
from tidemill.errors import StoreUnavailable
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


def waves(events: Iterable[StoredEvent]) -> list[list[StoredEvent]]:
    """The events in groups without two events of one job, each job's in their order. Events without a job stay in theirs too."""
    groups: list[list[StoredEvent]] = []
    seen: defaultdict[UUID | str, int] = defaultdict(int)
    for stored in events:
        turn = seen[stored.job_id or stored.name]
        seen[stored.job_id or stored.name] += 1
        if turn == len(groups):
            groups.append([])
        groups[turn].append(stored)
    return groups


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

    def _deliver_batches(self, handler: BatchHandler, events: list[StoredEvent]) -> None:
        """Pass events on together, but never two of one job: the first must be handled before the next is sent."""
        blocked: set[UUID | None] = set()
        for wave in waves(events):
            batch = [stored for stored in wave if stored.job_id not in blocked]
            if not batch or self._closed() or not self.keeper.held:
                return
            try:
                errors = handler.handle([event_of(stored) for stored in batch])
            except StoreUnavailable as error:
                # Only the first one shows the error: an outage must not make every event wait long after its end.
                self._delay(batch[0], timedelta(seconds=1), str(error))
                raise
            self._store.settle_events([stored.seq for stored in batch if stored.seq not in errors])
            for stored in batch:
                if stored.seq in errors:
                    self._delay(stored, retry_delay(stored.attempts + 1), errors[stored.seq])
                    blocked.add(stored.job_id)

    def _delay(self, stored: StoredEvent, delay: timedelta, error: str) -> None:
        delayed = DelayedEvent(stored.seq, delay, clip(error, _LONGEST_ERROR))
        self._store.delay_events([delayed], now=pin_of(self._clock))

    def _deliver(self, events: list[StoredEvent]) -> None:
        if isinstance(self._handler, BatchHandler):
            self._deliver_batches(self._handler, events)
            return
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
            self._delay(stored, retry_delay(stored.attempts + 1), f"{type(error).__name__}: {error}")
            return False
        return True
