"""Rules of notifications: which events are sent to whom, and in which words."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from string import Template
from typing import Any, NamedTuple

from tidemill.domain.alert_history import OPENED, RECOVERED, is_critical
from tidemill.domain.durations import Duration, read_duration
from tidemill.domain.quiet_hours import QuietHours, read_quiet_hours
from tidemill.domain.subscriptions import ASKED, FINISHED, PUT_OFF, StoredEvent, StoredSubscription
from tidemill.errors import BadSettings

SUBSCRIPTION = "notifications/"
"""Prefix of the subscriptions of rules."""

OWNER, DEFINITION, OF_TASK, QUESTION = "@owner", "@definition", "@task", "@question"
"""Recipients that depend on the event: the owner of its job, its definition's ``notifications``, its task's ``notify``, the people it asks."""

PERMANENT = ("failed", "dead_lettered")
"""The kinds of permanent failures."""

TASK, QUEUE = "tidemill.notification", "tidemill.notifications"
"""The task and the queue of notifications."""

_STATES: Mapping[str, tuple[str, ...]] = {
    "completed": ("completed",),
    "failed": ("failed", "timed_out"),
    "dead_lettered": ("dead_lettered",),
    "cancelled": ("cancelled",),
}
_ALERTS = ("alert", "schedule_late")
KINDS = (*_STATES, "review_needed", "asked", *_ALERTS)
"""The kinds of events that a rule may name."""

_LATE = "schedule_late"
_SHOWN = 20  # items that a notification lists
_SEVERITIES = frozenset({"warning", "critical"})
_WORDS = {
    "completed": ("completed", "completed"),
    "failed": ("failed", "failed"),
    "dead_lettered": ("was dead-lettered", "were dead-lettered"),
    "cancelled": ("was cancelled", "were cancelled"),
    "review_needed": ("waits for a review", "wait for a review"),
    "asked": ("waits for an answer", "wait for an answer"),
}


@dataclass(frozen=True, slots=True)
class NotificationRule:
    """Which events are sent to a channel: ``NotificationRule("ops", on=["dead_lettered", "alert"])``.

    ``to`` names a channel of ``App(notify=…)``, or several. ``on`` lists the kinds of events. ``tasks``, ``tenants``,
    ``owners`` and ``alerts`` (codes) restrict the rule; they are patterns like file names. Events within ``every`` are
    sent as one notification. During ``quiet`` hours notifications wait, except those of critical alerts. ``title`` and ``text``
    are templates such as ``"$count jobs of $task failed"``.
    """

    to: str | Sequence[str]
    on: str | Sequence[str] = ("dead_lettered", "alert")
    tasks: Sequence[str] | None = None
    tenants: Sequence[str] | None = None
    owners: Sequence[str] | None = None
    alerts: Sequence[str] | None = None
    every: Duration = 60
    quiet: str | None = None
    title: str | None = None
    text: str | None = None
    name: str | None = None
    window: timedelta = field(init=False, repr=False, compare=False)
    hours: QuietHours | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for key in ("to", "on"):
            given = getattr(self, key)
            object.__setattr__(self, key, (given,) if isinstance(given, str) else tuple(given))
        for key in ("tasks", "tenants", "owners", "alerts"):
            given = getattr(self, key)
            if given is not None:
                object.__setattr__(self, key, (given,) if isinstance(given, str) else tuple(given))
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds or not self.channels:
            raise BadSettings(
                f"a notification rule is on {unknown[0] if unknown else 'nothing'!r}; "
                f"expected channels, and one or more of {', '.join(KINDS)}"
            )
        object.__setattr__(self, "window", read_duration("every", self.every))
        object.__setattr__(self, "hours", None if self.quiet is None else read_quiet_hours(self.quiet))
        if self.name is None:
            filters = [part for part in (self.tasks, self.tenants, self.owners, self.alerts) if part]
            words = ["+".join(self.channels), "+".join(self.kinds), *("+".join(part) for part in filters)]
            object.__setattr__(self, "name", "/".join(words)[:150])

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels that it sends to."""
        return (self.to,) if isinstance(self.to, str) else tuple(self.to)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of events that it sends."""
        return (self.on,) if isinstance(self.on, str) else tuple(self.on)

    def subscription(self) -> StoredSubscription:
        """The subscription that records the events of this rule."""
        patterns: set[str] = set()
        states: set[str] = set()
        for kind in self.kinds:
            if kind in _STATES:
                patterns.add(FINISHED)
                states.update(_STATES[kind])
            elif kind == "review_needed":
                patterns.add(PUT_OFF)
                states.add("review_needed")
            elif kind == "asked":
                patterns.add(ASKED)
                states.update({"waiting", "scheduled"})
            else:
                patterns.update({OPENED, RECOVERED})
                states.update(_SEVERITIES)
        return StoredSubscription(
            f"{SUBSCRIPTION}{self.name}",
            tuple(sorted(patterns)),
            frozenset(states),
            None if self.tasks is None else tuple(self.tasks),
        )


class EventContext(NamedTuple):
    """Properties of an event that its record does not contain."""

    owner: str | None = None
    definition: str | None = None
    notifications: Mapping[str, Sequence[str]] = {}  #: of the definition
    notify: Mapping[str, Sequence[str]] = {}  #: of the task
    asked: tuple[str, ...] = ()  #: the people whom the job asks
    question: str | None = None


class Notification(NamedTuple):
    """A message to one recipient about one or several events, as the arguments of its job."""

    channel: str
    kind: str
    title: str
    text: str
    number: int  #: of events
    rule: str
    items: list[dict[str, Any]]
    link: str | None = None


def kind_of(event: StoredEvent) -> str | None:
    """The kind of an event in rules; None for one that is no notification.

    >>> from datetime import UTC, datetime
    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> kind_of(StoredEvent(1, "x", "job.finished", at, None, "a", "default", "timed_out", "{}"))
    'failed'
    """
    if event.name in (OPENED, RECOVERED):
        return "alert"
    if event.name == ASKED:
        return "asked"
    if event.name == PUT_OFF:
        return "review_needed" if event.state == "review_needed" else None
    return next((kind for kind, states in _STATES.items() if event.state in states), None)


def fits(rule: NotificationRule, event: StoredEvent, context: EventContext) -> bool:
    """Whether a rule sends this event."""
    kind = kind_of(event)
    if kind == "alert":
        code = str(json.loads(event.data).get("code"))
        wanted = "alert" in rule.kinds or (_LATE in rule.kinds and code == _LATE)
        return wanted and _matches(rule.alerts, code)
    return (
        kind in rule.kinds
        and _matches(rule.tasks, event.task)
        and _matches(rule.tenants, event.tenant)
        and _matches(rule.owners, context.owner)
    )


def recipients(
    rule: NotificationRule, event: StoredEvent, context: EventContext, owners: Iterable[str]
) -> list[str]:
    """The channels to which a rule sends an event. ``owner:NAME`` is the address of an owner."""
    owner_names = set(owners)
    targets: list[str] = []
    for target in rule.channels:
        if target == OWNER:
            targets += [f"owner:{context.owner}"] if context.owner in owner_names else []
        elif target in (DEFINITION, OF_TASK):
            chosen = context.notifications if target == DEFINITION else context.notify
            names = chosen.get(kind_of(event) or "", ())
            targets += [f"owner:{name}" if name in owner_names else name for name in names]
        elif target == QUESTION:
            targets += [f"owner:{name}" if name in owner_names else name for name in context.asked]
        else:
            targets.append(target)
    return list(dict.fromkeys(targets))


def is_urgent(event: StoredEvent) -> bool:
    """Whether an event is sent during quiet hours."""
    return event.name in (OPENED, RECOVERED) and is_critical(event.state or "")


def collapse(
    rule: NotificationRule, events: Sequence[tuple[StoredEvent, EventContext, Sequence[str]]], url: str | None
) -> list[Notification]:
    """One notification for each recipient and kind of event, in the order of the events."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for event, context, channels in events:
        kind = kind_of(event) or ""
        for channel in channels:
            groups.setdefault((channel, kind), []).append(_item(event, context, url))
    return [_notification(rule, channel, kind, items, url) for (channel, kind), items in groups.items()]


def _item(event: StoredEvent, context: EventContext, url: str | None) -> dict[str, Any]:
    data = json.loads(event.data)
    error = data.get("error") or {}
    item: dict[str, Any] = {
        "event": event.name,
        "at": event.at.isoformat(),
        "job_id": None if event.job_id is None else str(event.job_id),
        "task": event.task,
        "tenant": event.tenant,
        "status": event.state,
        "reason": data.get("reason"),
        "error": ": ".join(filter(None, (error.get("type"), error.get("message")))) or None,
        "owner": context.owner,
        "definition": context.definition,
        "question": context.question,
        "code": data.get("code"),
        "subject": data.get("subject"),
        "text": data.get("text"),
    }
    if url is not None and event.job_id is not None:
        item["link"] = f"{url}/jobs/{event.job_id}"
    return {key: value for key, value in item.items() if value not in (None, "")}


def _notification(
    rule: NotificationRule, channel: str, kind: str, items: list[dict[str, Any]], url: str | None
) -> Notification:
    first, count = items[0], len(items)
    link = first.get("link") if count == 1 else None
    if link is None and url is not None:
        link = f"{url}/alerts" if kind == "alert" else f"{url}/jobs"
    fields = {**first, "count": count, "kind": kind, "link": link or "", "rule": rule.name}
    title = Template(rule.title).safe_substitute(fields) if rule.title else _title(kind, items)
    text = Template(rule.text).safe_substitute(fields) if rule.text else _text(kind, items)
    return Notification(channel, kind, title, text, count, rule.name or "", items[:_SHOWN], link)


def _title(kind: str, items: Sequence[Mapping[str, Any]]) -> str:
    first, count = items[0], len(items)
    if kind == "alert":
        recovered = [item for item in items if item["event"] == RECOVERED]
        if count == 1:
            return f"{'Recovered' if recovered else 'Alert'}: {first.get('code')} {first.get('subject', '')}".strip()
        parts = {"opened": count - len(recovered), "recovered": len(recovered)}
        return "Alerts: " + ", ".join(f"{number} {what}" for what, number in parts.items() if number)
    one, several = _WORDS.get(kind, (kind, kind))
    tasks = {item.get("task") for item in items}
    of = f" of {first.get('task')}" if len(tasks) == 1 else ""
    return f"1 job{of} {one}" if count == 1 else f"{count} jobs{of} {several}"


def _text(kind: str, items: Sequence[Mapping[str, Any]]) -> str:
    lines = [_alert_line(item) if kind == "alert" else _job_line(item) for item in items[:_SHOWN]]
    if len(items) > _SHOWN:
        lines.append(f"and {len(items) - _SHOWN} more")
    return "\n".join(lines)


def _alert_line(item: Mapping[str, Any]) -> str:
    prefix = "recovered: " if item["event"] == RECOVERED else ""
    return f"{prefix}{item.get('text')}"


def _job_line(item: Mapping[str, Any]) -> str:
    why = item.get("question") or item.get("error") or item.get("reason")
    link = f" {item['link']}" if "link" in item else ""
    return f"{item.get('task')} {item.get('job_id')}{f': {why}' if why else ''}{link}"


def _matches(patterns: Sequence[str] | None, name: str | None) -> bool:
    return patterns is None or any(fnmatch.fnmatchcase(name or "", pattern) for pattern in patterns)


def read_channels(what: str, given: object) -> dict[str, list[str]]:
    """Read channels by kind of event: the ``notifications`` of a definition, or ``notify`` of a task.

    >>> read_channels("notify", {"failed": "ops"})
    {'failed': ['ops']}
    """
    kinds = [kind for kind in KINDS if kind not in _ALERTS]
    if not isinstance(given, Mapping):
        raise BadSettings(f"{what} is {given!r}; give a mapping such as {{'failed': ['ops']}}")
    notifications: dict[str, list[str]] = {}
    for kind, names in given.items():
        channels = [names] if isinstance(names, str) else names
        if kind not in kinds:
            raise BadSettings(f"{what}: unknown event {kind!r}; expected one of {', '.join(kinds)}")
        if not isinstance(channels, list | tuple) or not all(isinstance(name, str) for name in channels):
            raise BadSettings(f"{what}: {kind} is {names!r}; give the names of channels")
        notifications[kind] = list(channels)
    return notifications
