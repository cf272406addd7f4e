"""Signals to jobs and events: their values and bounds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID, uuid5

from tidemill.errors import BadSettings

MOST_UNREAD = 1_000
"""How many unread signals a job may have; another one is refused."""
LONGEST_NAME = 200
EVENTS_KEPT = timedelta(days=7)
"""How long an event can be found by jobs that wait for it, and listed."""
QUESTION = "ask/"
"""The prefix of the signals that answer a question to people; no other signal may have it."""
ANSWER = "answer/"
"""The prefix of the keys of answers. No other signal may have it: it would take the place of the answer."""
ASKED = "@ask/"
"""The prefix of the step that records a question to people; the name of its signal follows."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EVENTS = UUID("6f0c1a52-7a0e-5e0b-9d57-3f3c1f7d9a10")


class NewSignal(NamedTuple):
    """A message to one job. ``key`` makes it idempotent; ``payload`` is JSON text; ``source`` is the sender."""

    job_id: UUID
    tenant: str
    name: str
    payload: str | None = None
    key: str | None = None
    source: str | None = None


class Posted(StrEnum):
    """The answer to one signal."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"  #: a signal with this key was accepted before; this one is not stored
    ENDED = "ended"  #: the job has ended
    MISSING = "missing"  #: the tenant has no such job
    FULL = "full"  #: the job has as many unread signals as it may have


class StoredSignal(NamedTuple):
    """An unread signal. ``position`` orders the signals of a job."""

    position: int
    job_id: UUID
    tenant: str
    name: str
    payload: str | None
    key: str | None
    source: str | None
    created_at: datetime


class SignalFence(NamedTuple):
    """The job that a worker holds, with its token."""

    job_id: UUID
    number: int
    worker: UUID | None


class Taken(NamedTuple):
    """The record of a step that took a signal; ``record`` is None if there was none to take, or if the job was lost."""

    record: str | None
    lost: bool = False


class EmittedEvent(NamedTuple):
    """A message to everything that waits for its name. ``match`` restricts it to those that wait for the same text."""

    id: UUID
    tenant: str
    name: str
    match: str = ""
    payload: str | None = None
    source: str | None = None
    created_at: datetime | None = None  #: set by the store


class StoredWait(NamedTuple):
    """A name that a suspended job waits for: a signal, or an event since ``since_at``."""

    job_id: UUID
    name: str
    match: str
    event: bool
    since_at: datetime


def event_id(tenant: str, name: str, given: str) -> UUID:
    """The id of an event that its sender identifies by a text: the same text of a name and tenant has the same id.

    >>> event_id("default", "paid", "evt_1") == event_id("default", "paid", "evt_1")
    True
    >>> event_id("default", "paid", "evt_1") == event_id("other", "paid", "evt_1")
    False
    """
    return uuid5(_EVENTS, json.dumps([tenant, name, given]))


def signal_record(signal: StoredSignal) -> str:
    """The record of the step that takes a signal, which a store writes: name, sender, instant (in microseconds) and value.

    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> signal_record(StoredSignal(1, UUID(int=1), "default", "go", '{"n":1}', None, "ada", at))
    '{"is":"signal","name":"go","source":"ada","at":1767225600000000,"v":{"n":1}}'
    """
    name, source = (json.dumps(text, ensure_ascii=False) for text in (signal.name, signal.source))
    at = (signal.created_at - _EPOCH) // timedelta(microseconds=1)
    return f'{{"is":"signal","name":{name},"source":{source},"at":{at},"v":{signal.payload or "null"}}}'


def check_signal_key(key: str | None) -> None:
    """Refuse a key of a signal that is reserved for the answer to a question."""
    if key is not None and key.startswith(ANSWER):
        raise BadSettings(f"keys that begin with {ANSWER!r} belong to answers; give another one", key=key)


def check_message_name(kind: str, name: str) -> None:
    """Refuse a name of a signal or an event that is empty, too long or reserved."""
    if not name or not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise BadSettings(
            f"{name!r} is not a name of {'an' if kind == 'event' else 'a'} {kind}; "
            f"give 1 to {LONGEST_NAME} printable characters",
            name=name,
        )
    if kind == "signal" and name.startswith(QUESTION):
        raise BadSettings(
            f"signals whose name begins with {QUESTION!r} are answers; use app.signals.answer", name=name
        )
