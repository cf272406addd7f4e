"""Settings, pauses, and the hash chain of the audit log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

GENESIS = "0" * 64
"""The hash that precedes the first entry."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of the worker configuration, changeable at run time."""

    key: str
    value: object
    description: str | None = None
    updated_at: datetime | None = None
    updated_by: str | None = None


class PauseKind(StrEnum):
    """A kind of object that can be paused."""

    QUEUE = "queue"
    TASK = "task"
    TENANT = "tenant"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Pause:
    """No job of this queue, task or tenant starts during the pause; running jobs continue."""

    kind: PauseKind
    name: str
    reason: str | None = None
    paused_by: str | None = None
    paused_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An audited action: actor, action, object, and the object's state before and after."""

    who: str
    action: str
    subject: str
    tenant: str
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None


class AuditRecord(NamedTuple):
    """A stored audit entry: numbered without gaps, timestamped, and chained to the previous one."""

    number: int
    at: datetime
    entry: AuditEntry
    hash: str


def audit_hash(previous: str, number: int, at: datetime, entry: AuditEntry) -> str:
    """The hash of an entry and its predecessor's hash, so that any change, deletion or reordering is detectable."""
    body = [
        previous,
        number,
        at.astimezone(UTC).isoformat(timespec="microseconds"),
        entry.tenant,
        entry.who,
        entry.action,
        entry.subject,
        entry.before,
        entry.after,
    ]
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def first_break(records: Iterable[AuditRecord], previous: str = GENESIS, number: int = 0) -> int | None:
    """The number of the first record that does not follow from its predecessor; None if the chain is intact."""
    for record in records:
        number += 1
        if record.number != number or record.hash != audit_hash(previous, number, record.at, record.entry):
            return number
        previous = record.hash
    return None
