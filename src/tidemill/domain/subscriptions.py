"""Stored subscriptions, and the events that store writes record for them."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.job import Claim, ErrorInfo, Finish, JobRow, NewJob
from tidemill.domain.records import Setting
from tidemill.domain.signals import QUESTION
from tidemill.domain.states import ENDED, ExecutionState, JobState

SETTING = "events/"
"""Prefix of the settings that hold subscriptions, so that workers read them together with all other settings."""

ENQUEUED, STARTED, FINISHED = "job.enqueued", "job.started", "job.finished"
PUT_OFF, RECLAIMED, ASKED = "job.put_off", "job.reclaimed", "job.asked"

OWN_TASKS = "tidemill."
"""Prefix of Tidemill's own tasks, whose jobs record no events: a notification about a failed notification would never end."""

TOPIC = "events"
"""The wake-up topic of recorded events."""

_FIRST_DELAY, _LONGEST_DELAY = timedelta(seconds=1), timedelta(hours=1)
_LONGEST_TEXT = 500


class NewEvent(NamedTuple):
    """An event to record. ``data`` is a JSON object as text."""

    name: str
    job_id: UUID | None = None
    task: str | None = None
    tenant: str | None = None
    state: str | None = None
    data: str = "{}"


class StoredEvent(NamedTuple):
    """An event that one subscription has not handled yet. ``seq`` orders the events of a job."""

    seq: int
    subscription: str
    name: str
    at: datetime
    job_id: UUID | None
    task: str | None
    tenant: str | None
    state: str | None
    data: str
    attempts: int = 0


class EventBacklog(NamedTuple):
    """The events that wait for one subscription."""

    subscription: str
    waiting: int
    failing: int  #: events whose handler has failed at least once
    oldest_at: datetime | None
    last_error: str | None = None


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    """A subscription whose events the store records.

    ``states`` and ``tasks`` (patterns) restrict it; None stands for all. A live subscription has ``until``: it ends
    then unless its process renews it.
    """

    name: str
    patterns: tuple[str, ...]
    states: frozenset[str] | None = None
    tasks: tuple[str, ...] | None = None
    until: datetime | None = None

    def wants(self, name: str, state: str | None, task: str | None) -> bool:
        """Whether the store records an event for this subscription."""
        if self.states is not None and state not in self.states:
            return False
        if task is not None and (
            task.startswith(OWN_TASKS) or (self.tasks is not None and not _any_match(self.tasks, task))
        ):
            return False
        return _any_match(self.patterns, name)

    def setting(self, by: str | None = None) -> Setting:
        """The subscription as a setting."""
        value: dict[str, object] = {"on": list(self.patterns)}
        if self.states is not None:
            value["states"] = sorted(self.states)
        if self.tasks is not None:
            value["tasks"] = sorted(self.tasks)
        if self.until is not None:
            value["until"] = self.until.isoformat()
        return Setting(SETTING + self.name, value, "A subscription to events.", None, by)


def read_subscriptions(settings: Iterable[Setting]) -> tuple[StoredSubscription, ...]:
    """Read the subscriptions among the settings. Invalid ones are ignored.

    >>> read_subscriptions([Setting("events/billing", {"on": ["job.finished"]})])[0].name
    'billing'
    """
    subscriptions = [_read(setting) for setting in settings if setting.key.startswith(SETTING)]
    return tuple(subscription for subscription in subscriptions if subscription is not None)


def _read(setting: Setting) -> StoredSubscription | None:
    value = setting.value
    patterns = value.get("on") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(patterns, list):
        return None
    states, tasks, until = value.get("states"), value.get("tasks"), value.get("until")
    return StoredSubscription(
        setting.key.removeprefix(SETTING),
        tuple(str(pattern) for pattern in patterns),
        frozenset(map(str, states)) if isinstance(states, list) else None,
        tuple(map(str, tasks)) if isinstance(tasks, list) else None,
        datetime.fromisoformat(until) if isinstance(until, str) else None,
    )


def route(
    subscriptions: Sequence[StoredSubscription], events: Iterable[NewEvent]
) -> list[tuple[str, NewEvent]]:
    """The rows to write: each event once for each subscription that wants it, in the order of the events."""
    return [
        (subscription.name, event)
        for event in events
        for subscription in subscriptions
        if subscription.wants(event.name, event.state, event.task)
    ]


def wants_any(subscriptions: Sequence[StoredSubscription], name: str) -> bool:
    """Whether a subscription may want events of this name."""
    return any(_any_match(subscription.patterns, name) for subscription in subscriptions)


def watched_finishes(subscriptions: Sequence[StoredSubscription], finishes: Sequence[Finish]) -> list[Finish]:
    """The finishes that may need an event, whether or not the row has a late cancel request."""
    return [
        item
        for item in finishes
        if any(
            subscription.wants(name, state, item.claim.task)
            for state in (item.transition.state, item.transition.on_cancel)
            if state is not None
            for name in _names(item, state)
            for subscription in subscriptions
        )
    ]


def finish_events(item: Finish, state: JobState) -> list[NewEvent]:
    """The events of an accepted finish that left its job in this state."""
    claim, transition = item.claim, item.transition
    data: dict[str, object] = {"attempt": claim.attempt, "max_attempts": claim.max_attempts}
    if transition.reason:
        data["reason"] = transition.reason[:_LONGEST_TEXT]
    if item.error is not None:
        data["error"] = _error(item.error)
    if state not in ENDED and transition.delay:
        data["delay"] = transition.delay.total_seconds()
    questions = _questions(item)
    events = []
    for name in _names(item, state):
        given = {**data, "questions": questions} if name == ASKED else data
        events.append(_of_claim(name, claim, state, given))
    return events


def _names(item: Finish, state: JobState) -> list[str]:
    if state in ENDED:
        return [FINISHED]
    if item.transition.execution is ExecutionState.CRASHED:
        return [RECLAIMED]
    return [PUT_OFF, ASKED] if _questions(item) else [PUT_OFF]


def _questions(item: Finish) -> list[str]:
    waits = () if item.additions is None else item.additions.waits
    return [wait.name for wait in waits if not wait.event and wait.name.startswith(QUESTION)]


def started_event(claim: Claim) -> NewEvent:
    """The event of a job that a worker begins."""
    data = {"attempt": claim.attempt, "max_attempts": claim.max_attempts}
    return _of_claim(STARTED, claim, JobState.RUNNING, data)


def enqueued_event(job: NewJob, state: JobState) -> NewEvent:
    """The event of a new job."""
    return NewEvent(ENQUEUED, job.id, job.task, job.tenant, state.value)


def row_event(name: str, job: JobRow, data: Mapping[str, object]) -> NewEvent:
    """The event of an action on a stored job."""
    return NewEvent(name, job.id, job.task, job.tenant, job.state.value, dump_data(data))


def retry_delay(attempts: int) -> timedelta:
    """How long an event waits after its handler has failed this many times.

    >>> [retry_delay(attempts).total_seconds() for attempts in (1, 2, 3, 40)]
    [1.0, 2.0, 4.0, 3600.0]
    """
    return min(_FIRST_DELAY * (1 << min(attempts - 1, 20)), _LONGEST_DELAY)


def dump_data(data: Mapping[str, object]) -> str:
    """The data of an event as JSON; values that JSON does not support become text."""
    return json.dumps(data, default=str, ensure_ascii=False)


def _of_claim(name: str, claim: Claim, state: JobState, data: Mapping[str, object]) -> NewEvent:
    return NewEvent(name, claim.id, claim.task, claim.tenant, state.value, dump_data(data))


def _error(error: ErrorInfo) -> dict[str, str]:
    return {"type": error.type, "message": error.message[:_LONGEST_TEXT]}


def _any_match(patterns: Iterable[str], name: str) -> bool:
    return any(pattern == name or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
