"""What operators set and what is written down about them: settings, pauses, and the audit's hash chain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

GENESIS = "0" * 64
"""The hash before the first entry."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of the worker configuration, changeable at run time."""

    key: str
    value: object
    description: str | None = None
    updated_at: datetime | None = None
    updated_by: str | None = None


class PauseKind(StrEnum):
    """What can be paused."""

    QUEUE = "queue"
    TASK = "task"
    TENANT = "tenant"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing of this queue, task or tenant starts while the pause stands; what runs goes on."""

    kind: PauseKind
    name: str
    reason: str | None = None
    paused_by: str | None = None
    paused_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Who did what to which thing, and how it was before and after."""

    who: str
    action: str
    subject: str
    tenant: str
    before: Mapping[str, object] | None = None
    after: Mapping[str, object] | None = None


class AuditRecord(NamedTuple):
    """An audit entry as stored: numbered without gaps, dated, and chained to the one before it."""

    number: int
    at: datetime
    entry: AuditEntry
    hash: str


def audit_hash(previous: str, number: int, at: datetime, entry: AuditEntry) -> str:
    """The hash of an entry, which covers the hash before it: nothing can be changed, dropped or moved unseen."""
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
    """The number of the first record that does not follow from the one before it; None when the chain is whole."""
    for record in records:
        number += 1
        if record.number != number or record.hash != audit_hash(previous, number, record.at, record.entry):
            return number
        previous = record.hash
    return None
