"""Audit log pages, and verification of the audit log's hash chain."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from starlette.responses import Response

from tidemill.dashboard.page_request import PageRequest
from tidemill.dashboard.pages import PageRoutes
from tidemill.domain.access import Role
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.records import AuditRecord
from tidemill.web.problems import Problem

pages = PageRoutes()

PAGE = 50

_PLACES = {
    "job": "/jobs/{}",
    "flow": "/flows/{}",
    "worker": "/workers/{}",
    "schedule": "/schedules",
    "definition": "/schedules",
    "queue": "/queues",
    "limit": "/queues",
    "task": "/tasks",
    "tenant": "/tenants",
    "lease": "/workers",
    "setting": "/settings",
    "key": "/settings/keys",
}
"""Address of the page that shows the subject of an entry, by kind of subject."""


class ChangedField(NamedTuple):
    """Old and new value of one field.

    If ``had`` or ``has`` is false, the field did not exist before or does not exist now.
    """

    name: str
    had: bool
    before: object
    has: bool
    after: object


class AuditRow(NamedTuple):
    """An audit entry prepared for the page."""

    record: AuditRecord
    changes: list[ChangedField]
    place: str | None


@pages.get("/audit", role=Role.ADMIN)
async def audit(request: PageRequest) -> Response:
    """List the matching entries, newest first."""
    conditions = {name: request.query.get(name) for name in ("who", "action", "subject")}
    since = request.query.get("since")
    before = request.query.whole_number("before", 0, most=2**62) or None
    wrong = None
    try:
        since_at = _day(since)
    except ValueError:
        since_at, wrong = None, f"{(since or '')[:40]!r} is not a date; write it as 2026-12-31"
    records = await request.read(_look, request, conditions, since_at, before)
    entries = [AuditRow(record, _changes(record), _place(record)) for record in records]
    return request.render(
        "audit.html",
        422 if wrong else 200,
        entries=entries[:PAGE],
        following=entries[PAGE - 1].record.number if len(entries) > PAGE else None,
        conditions=conditions,
        since=since or "",
        wrong=wrong,
        is_filtered=bool(since) or any(conditions.values()),
        before=before,
    )


@pages.get("/audit/verify", role=Role.ADMIN, everywhere=True)
async def verify(request: PageRequest) -> Response:
    """Verify the hash chain of all tenants and show where it breaks. This changes nothing, so it is a GET page."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Problem(403, "other_site", "the audit can be verified only from the audit page")
    verified = await request.read(request.app.audit.verify)
    return request.render("audit_verified.html", verified=verified)


def _look(
    request: PageRequest, conditions: Mapping[str, str | None], since_at: datetime | None, before: int | None
) -> list[AuditRecord]:
    after = 0 if since_at is None else _last_before(request, since_at)
    return list(
        request.app.audit.list(
            tenant=request.tenant,
            after=after,
            before=before,
            newest=True,
            limit=PAGE + 1,
            **conditions,
        )
    )


def _last_before(request: PageRequest, at: datetime) -> int:
    """Find the number of the last entry before an instant.

    Entries are numbered without gaps in time order, so a binary search needs only a few reads.
    """
    newest = request.app.audit.list(tenant=ALL_TENANTS, newest=True, limit=1)
    low, high = 0, newest[0].number if newest else 0
    while low < high:
        middle = (low + high) // 2
        (entry,) = request.app.audit.list(tenant=ALL_TENANTS, after=middle, limit=1)
        if entry.at < at:
            low = middle + 1
        else:
            high = middle
    return low


def _day(text: str | None) -> datetime | None:
    """Parse a day as its first instant in UTC.

    >>> _day("2026-12-31"), _day(None)
    (datetime.datetime(2026, 12, 31, 0, 0, tzinfo=datetime.timezone.utc), None)
    """
    if text is None:
        return None
    day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    return max(day, datetime.min.replace(tzinfo=UTC) + timedelta(days=2))


def _changes(record: AuditRecord) -> list[ChangedField]:
    """Compare the old and new fields of an entry."""
    old, new = record.entry.before or {}, record.entry.after or {}
    return [
        ChangedField(name, name in old, old.get(name), name in new, new.get(name)) for name in {**old, **new}
    ]


def _place(record: AuditRecord) -> str | None:
    kind, _, name = record.entry.subject.partition(":")
    if kind == "jobs":
        return "/jobs"
    place = _PLACES.get(kind)
    return None if place is None else place.format(name)
