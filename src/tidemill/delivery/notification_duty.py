"""Conversion of recorded events to notifications, each a job of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.clock import Clock
from tidemill.delivery.background import LeaseKeeper, pin_of
from tidemill.delivery.settings import DEFINITIONS, TASKS, DeliverySettings
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow, NewJob
from tidemill.domain.notifications import (
    OF_TASK,
    OWNER,
    QUEUE,
    SUBSCRIPTION,
    TASK,
    EventContext,
    Notification,
    NotificationRule,
    collapse,
    fits,
    is_urgent,
    recipients,
)
from tidemill.domain.schedules import Definition
from tidemill.domain.subscriptions import SETTING, StoredEvent, StoredSubscription
from tidemill.ids import new_id
from tidemill.stores.base import Store

LEASE = "notifications"
"""The lease of the process that turns events into notifications."""

ATTEMPTS = 10
"""Attempts of a notification, with growing delays of up to an hour."""

KEPT = timedelta(days=7)
"""How long a rule that no worker declares continues to record events."""

_BATCH = 1_000
_IDLE, _TAKEN = 5.0, 2.0
_DECLARE = 600.0  # seconds between two looks at the stored rules
_TIMEOUT = timedelta(minutes=2)


class Asked(NamedTuple):
    """A question of a job to people."""

    to: str | None
    title: str


class NotificationSources(NamedTuple):
    """The parts of the app that the duty reads."""

    owner_of: Callable[[str], str | None]  #: the owner of a task
    questions_of: Callable[[UUID], Sequence[Asked]]
    notify_of: Callable[[str], Mapping[str, Sequence[str]]]  #: the channels of a task
    notified: Callable[
        [], Mapping[str, Mapping[str, Sequence[str]]]
    ]  #: the channels of all tasks that have any


class NotificationDuty:
    """Collapses the events of each rule into notifications and enqueues them, in the transaction that settles the events."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: DeliverySettings,
        sources: NotificationSources,
        process: str,
    ) -> None:
        self._store, self._clock, self._settings, self._sources = store, clock, settings, sources
        self._rules = settings.all_rules()
        self._declared_at = float("-inf")
        self.keeper = LeaseKeeper(store, clock, LEASE, process)

    def step(self, *, force: bool = False) -> float:
        """Send what is due. With ``force`` no rule waits for more events; quiet hours still apply."""
        self._declare()
        if not self.keeper.take():
            return _TAKEN
        wait = min([self._apply(rule, force=force) for rule in self._rules], default=_IDLE)
        self.keeper.note()
        return max(min(wait, _IDLE), 0.05)

    # Subscriptions -----------------------------------------------------------------------------------------------------

    def _declare(self) -> None:
        """Store the subscriptions of the rules, and renew them once a day."""
        now = self._clock.monotonic()
        if now - self._declared_at < _DECLARE:
            return
        at = self._now()
        stored = {setting.key: setting.value for setting in self._store.settings()}
        wanted = [
            subscription for rule in self._rules if (subscription := self._subscription(rule)) is not None
        ]
        changed = []
        for subscription in wanted:
            setting = replace(subscription, until=at + KEPT).setting()
            if not _is_current(stored.get(setting.key), setting.value, at):
                changed.append(setting)
        if changed:
            self._store.put_settings(changed, now=pin_of(self._clock))
            self._store.settings()
            self._store.notify(["change"])
        self._declared_at = now

    def _subscription(self, rule: NotificationRule) -> StoredSubscription | None:
        if rule.name == TASKS:
            return task_subscription(self._sources.notified())
        if rule.name != DEFINITIONS:
            return rule.subscription()
        return definition_subscription(self._store.definitions(tenant=ALL_TENANTS))

    # Notifications -----------------------------------------------------------------------------------------------------------

    def _apply(self, rule: NotificationRule, *, force: bool) -> float:
        """Send the events of one rule if they are due; return the seconds until then."""
        if not any(one.name == f"{SUBSCRIPTION}{rule.name}" for one in self._store.subscriptions):
            return _IDLE
        events = self._store.waiting_events(
            f"{SUBSCRIPTION}{rule.name}", limit=_BATCH, now=pin_of(self._clock)
        )
        if not events:
            return _IDLE
        now = self._now()
        quiet = None if rule.hours is None else rule.hours.ends_at(now)
        if quiet is not None:
            events = [event for event in events if is_urgent(event)]
            if not events:
                return (quiet - now).total_seconds()
        wait = (events[0].at + rule.window - now).total_seconds()
        if wait > 0 and not force:
            return wait
        self._send(rule, events)
        return 0.0 if len(events) == _BATCH else _IDLE

    def _send(self, rule: NotificationRule, events: Sequence[StoredEvent]) -> None:
        contexts = self._contexts(rule, events)
        chosen = [
            (event, context, recipients(rule, event, context, self._settings.owners))
            for event, context in zip(events, contexts, strict=True)
            if fits(rule, event, context)
        ]
        described = [
            (event, context, [name for name in names if self._settings.channel(name) is not None])
            for event, context, names in chosen
        ]
        jobs = [
            notification_job(notification) for notification in collapse(rule, described, self._settings.url)
        ]
        with self._store.transaction():
            if jobs:
                self._store.enqueue(jobs, now=pin_of(self._clock))
            self._store.settle_events([event.seq for event in events])
        if jobs:
            self._store.notify([f"ready:{QUEUE}"])

    def _contexts(self, rule: NotificationRule, events: Sequence[StoredEvent]) -> list[EventContext]:
        ids = {event.job_id for event in events if event.job_id is not None}
        jobs = {job.id: job for job in self._store.get(ids, tenant=ALL_TENANTS)} if ids else {}
        definitions: Mapping[UUID, Definition] = {}
        if any(job.details.definition_id is not None for job in jobs.values()):
            definitions = {row.id: row for row in self._store.definitions(tenant=ALL_TENANTS)}
        return [self._context(rule, event, jobs, definitions) for event in events]

    def _context(
        self,
        rule: NotificationRule,
        event: StoredEvent,
        jobs: Mapping[UUID, JobRow],
        definitions: Mapping[UUID, Definition],
    ) -> EventContext:
        if event.job_id is None:
            return EventContext()
        job = jobs.get(event.job_id)
        definition = None
        if job is not None and job.details.definition_id is not None:
            definition = definitions.get(job.details.definition_id)
        owner = None if definition is None else definition.owner
        if owner is None and event.task is not None:
            owner = self._sources.owner_of(event.task)
        asked = self._sources.questions_of(event.job_id) if "asked" in rule.kinds else ()
        return EventContext(
            owner,
            None if definition is None else definition.key,
            {} if definition is None else _notifications(definition),
            {} if event.task is None else self._sources.notify_of(event.task),
            tuple(question.to for question in asked if question.to),
            "; ".join(question.title for question in asked) or None,
        )

    def _now(self) -> datetime:
        return pin_of(self._clock) or self._store.now()


def notification_job(notification: Notification, to: str | None = None) -> NewJob:
    """The job that sends a notification."""
    args = {**notification._asdict(), "count": notification.number, "to": to}
    del args["number"]
    return NewJob(
        new_id(),
        TASK,
        json.dumps({key: value for key, value in args.items() if value is not None}, ensure_ascii=False),
        queue=QUEUE,
        max_attempts=ATTEMPTS,
        timeout=_TIMEOUT,
    )


def task_subscription(channels: Mapping[str, Mapping[str, Sequence[str]]]) -> StoredSubscription | None:
    """The subscription for the channels of tasks; None if no task has any."""
    kinds = sorted({kind for of_task in channels.values() for kind in of_task})
    if not kinds:
        return None
    return NotificationRule(OF_TASK, on=kinds, tasks=sorted(channels), name=TASKS).subscription()


def definition_subscription(definitions: Sequence[Definition]) -> StoredSubscription | None:
    """The subscription for the notifications of definitions; None if none has any."""
    having = [definition for definition in definitions if definition.notifications]
    kinds = sorted({kind for definition in having for kind in _notifications(definition)})
    if not kinds:
        return None
    tasks = sorted({definition.task for definition in having})
    return NotificationRule(OWNER, on=kinds, tasks=tasks, name=DEFINITIONS).subscription()


def _notifications(definition: Definition) -> dict[str, list[str]]:
    """The notifications of a definition, as far as they can be read."""
    return {
        kind: [str(name) for name in names]
        for kind, names in definition.notifications.items()
        if isinstance(names, list) and kind != "alert"
    }


def _is_current(stored: object, wanted: object, now: datetime) -> bool:
    """Whether a stored subscription is the same and lasts for most of its time."""
    if not isinstance(stored, dict) or not isinstance(wanted, dict):
        return False
    until = stored.get("until")
    if not isinstance(until, str) or {**stored, "until": None} != {**wanted, "until": None}:
        return False
    return datetime.fromisoformat(until) - now > KEPT - timedelta(days=1)


def drop_expired(store: Store, now: datetime) -> int:
    """Remove subscriptions that were not renewed, with their events. Returns the number of subscriptions."""
    store.settings()
    old = [one for one in store.subscriptions if one.until is not None and one.until < now]
    for subscription in old:
        with store.transaction():
            store.drop_settings([SETTING + subscription.name])
            store.drop_subscription(subscription.name)
    if old:
        store.settings()
        store.notify(["change"])
    return len(old)
