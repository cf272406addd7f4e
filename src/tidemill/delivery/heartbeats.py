"""Pings of external monitors about the jobs of schedules, in the style of healthchecks.io."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from tidemill.clock import Clock
from tidemill.delivery.background import LeaseKeeper, pin_of
from tidemill.delivery.subscriber import SubscriptionDuty
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.outgoing_addresses import Network
from tidemill.domain.schedules import ScheduleRow
from tidemill.domain.subscriptions import FINISHED, STARTED, StoredSubscription
from tidemill.stores.base import Store
from tidemill.tasks.events import Event

NAME = "heartbeats"
"""The subscription of heartbeats."""

OPTION = "heartbeat"
"""The option of a schedule that holds the address."""

_LOOK = 300.0  # seconds between two looks at the schedules
_IDLE = 5.0
_OLDEST = 600.0  # seconds after which a ping is given up: it would mislead the monitor


def heartbeat_subscription(schedules: Iterable[ScheduleRow]) -> StoredSubscription | None:
    """The subscription for the schedules that have an address; None if none has."""
    tasks = sorted({row.task for row in schedules if row.options.get(OPTION)})
    return StoredSubscription(NAME, (FINISHED, STARTED), None, tuple(tasks)) if tasks else None


def subscribe_heartbeats(store: Store, row: ScheduleRow, pin: datetime | None) -> None:
    """Record the events of a schedule's task from now on, if the schedule has an address."""
    if not row.options.get(OPTION):
        return
    store.settings()
    stored = next((one for one in store.subscriptions if one.name == NAME), None)
    tasks = {row.task, *(stored.tasks or () if stored is not None else ())}
    if stored is None or set(stored.tasks or ()) != tasks:
        wanted = StoredSubscription(NAME, (FINISHED, STARTED), None, tuple(sorted(tasks)))
        store.put_settings([wanted.setting()], now=pin)
        store.settings()
        store.notify(["change"])


class HeartbeatDuty:
    """Pings the address of a schedule when one of its jobs starts, succeeds or fails."""

    def __init__(self, store: Store, clock: Clock, networks: Sequence[Network], process: str) -> None:
        self._store, self._clock, self._networks = store, clock, networks
        self._inner = SubscriptionDuty(
            store, clock, StoredSubscription(NAME, ()), self.ping, process, declares=False
        )
        self.keeper: LeaseKeeper = self._inner.keeper
        self._looked_at = float("-inf")

    def step(self, *, force: bool = False) -> float:
        """Ping what is due."""
        if not any(one.name == NAME for one in self._store.subscriptions):
            return _IDLE
        if self._clock.monotonic() - self._looked_at > _LOOK:
            self._forget_removed()
        return self._inner.step(force=force)

    def _forget_removed(self) -> None:
        """End the recording of tasks whose schedules no longer have an address."""
        wanted = heartbeat_subscription(self._store.schedules(tenant=ALL_TENANTS))
        stored = next((one for one in self._store.subscriptions if one.name == NAME), None)
        if wanted is None:
            self._store.drop_settings([f"events/{NAME}"])
            self._store.settings()
        elif wanted != stored:
            self._store.put_settings([wanted.setting()], now=pin_of(self._clock))
            self._store.settings()
        self._looked_at = self._clock.monotonic()

    def ping(self, event: Event) -> None:
        """Ping the monitor of the schedule whose job this is. An exception lets the event wait and be repeated."""
        url = self._address(event)
        if url is None or self._is_old(event):
            return
        suffix = "/start" if event.name == STARTED else "" if event.state == "completed" else "/fail"
        from tidemill.delivery.outgoing_http import send  # few apps need it, and it takes long to import

        answer = send("POST", _with_suffix(url, suffix), allowed=self._networks)
        if answer.status >= 400:
            raise ConnectionError(f"the monitor answered {answer.status}")

    def _address(self, event: Event) -> str | None:
        if event.job_id is None:
            return None
        jobs = self._store.get([event.job_id], tenant=ALL_TENANTS)
        if not jobs or jobs[0].details.schedule_id is None:
            return None
        rows = self._store.schedules(tenant=ALL_TENANTS, ids=[jobs[0].details.schedule_id])
        address = rows[0].options.get(OPTION) if rows else None
        return None if address is None else str(address)

    def _is_old(self, event: Event) -> bool:
        now = pin_of(self._clock) or self._store.now()
        return (now - event.at).total_seconds() > _OLDEST


def _with_suffix(url: str, suffix: str) -> str:
    path, mark, query = url.partition("?")
    return f"{path.rstrip('/')}{suffix}{mark}{query}" if suffix else url
