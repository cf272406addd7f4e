"""Signed copies of the audit log: JSON lines, and a last line with the signature.

The signature is an HMAC over the last hash of the chain and the number of entries. The chain covers every entry, so the
signature does, too. Someone who may change the database, but does not have the key, cannot make such a file.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from tidemill.domain.records import GENESIS, AuditEntry, AuditRecord, first_break

LEAST_KEY = 32
"""Characters that a key needs at least."""


class CheckedExport(NamedTuple):
    """The check of an exported file."""

    ok: bool
    entries: int
    head: str
    problem: str | None = None


def export_line(record: AuditRecord) -> str:
    """One entry as a line of JSON."""
    entry = record.entry
    body = {
        "number": record.number,
        "at": record.at.isoformat(),
        "who": entry.who,
        "action": entry.action,
        "subject": entry.subject,
        "tenant": entry.tenant,
        "before": entry.before,
        "after": entry.after,
        "hash": record.hash,
    }
    return json.dumps(body)


def signature_line(key: str, entries: int, head: str, at: datetime) -> str:
    """The last line of a file."""
    signed = {"entries": entries, "head": head, "exported_at": at.isoformat()}
    return json.dumps({**signed, "signature": _signature(key, signed)})


def _signature(key: str, signed: dict[str, Any]) -> str:
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"))
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def checked_export(lines: Iterable[str], key: str) -> CheckedExport:
    """Check the chain and the signature of an exported file.

    >>> from datetime import datetime, UTC
    >>> checked_export([signature_line("k" * 32, 0, "0" * 64, datetime(2026, 1, 1, tzinfo=UTC))], "k" * 32).ok
    True
    """
    entries, head = 0, GENESIS
    last: dict[str, Any] | None = None
    for line in lines:
        try:
            body = json.loads(line)
            if "signature" in body:
                last = body
                continue
            record = _record(body)
        except (ValueError, KeyError, TypeError):
            return CheckedExport(False, entries, head, f"line {entries + 1} is not an audit entry")
        if last is not None or first_break([record], head, entries) is not None:
            problem = f"entry {entries + 1} does not follow from the one before it"
            return CheckedExport(False, entries, head, problem)
        entries, head = record.number, record.hash
    return _signed(last, key, entries, head)


def _signed(last: dict[str, Any] | None, key: str, entries: int, head: str) -> CheckedExport:
    if last is None:
        return CheckedExport(False, entries, head, "the file has no signature; its end is missing")
    signature = str(last.pop("signature"))
    if not hmac.compare_digest(signature.encode(), _signature(key, last).encode()):
        return CheckedExport(False, entries, head, "the signature is not one of this key")
    if last.get("entries") != entries or last.get("head") != head:
        return CheckedExport(False, entries, head, "entries were removed from the end of the file")
    return CheckedExport(True, entries, head)


def _record(body: dict[str, Any]) -> AuditRecord:
    entry = AuditEntry(
        body["who"], body["action"], body["subject"], body["tenant"], body["before"], body["after"]
    )
    return AuditRecord(body["number"], datetime.fromisoformat(body["at"]), entry, body["hash"])
