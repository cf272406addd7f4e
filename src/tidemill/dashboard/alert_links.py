"""Links from alerts to the pages where an operator can act on them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidemill.dashboard.job_filter import FAILED
from tidemill.domain.alert_history import StoredAlert
from tidemill.domain.alerts import Alert


class AlertLink(NamedTuple):
    """The text of an alert for this page, and the link to follow."""

    severity: str
    text: str
    since: Any
    path: str
    query: dict[str, Any]
    link: str


def concern(alert: Alert | StoredAlert) -> AlertLink:
    """Return the text and link for an alert.

    The command-line hint in the alert's text is dropped, because the link replaces it.

    >>> from tidemill.domain.alerts import Severity
    >>> concern(Alert("dead_letters", Severity.WARNING, "3 jobs were dead-lettered; see tidemill stats", 3, 0))[1:5]
    ('3 jobs were dead-lettered', None, '/jobs', {'status': 'dead_lettered'})
    """
    path, query, link = _place(alert)
    text = alert.text.partition("; see tidemill ")[0]
    return AlertLink(str(alert.severity), text[:1].upper() + text[1:], alert.since, path, query, link)


_PLACES: dict[str, tuple[str, dict[str, Any], str]] = {
    "failure_rate": ("/errors", {}, "Failed jobs"),
    "dead_letters": ("/jobs", {"status": "dead_lettered"}, "Dead letters"),
    "stuck_jobs": ("/jobs", {"status": "running"}, "Running jobs"),
    "worker_disabled": ("/queues", {}, "Pauses"),
    "archive_mismatch": ("/archive", {}, "Archive"),
    "schedule_late": ("/schedules", {}, "Schedules"),
    "breaker_open": ("/queues", {}, "Limits"),
    "stalled_flow": ("/flows", {"status": "running"}, "Running flows"),
    "late_cascade": ("/flows", {"status": "running"}, "Running flows"),
    "no_workers": ("/workers", {}, "Workers"),
    "lost_workers": ("/workers", {}, "Workers"),
    "orphans": ("/workers", {}, "Workers"),
    "stuck_leader": ("/workers", {}, "Workers"),
    "unserved_store": ("/workers", {}, "Workers"),
    "store_unavailable": ("/workers", {}, "Workers"),
}
_ELSEWHERE: tuple[str, dict[str, Any], str] = ("/jobs", {"status": FAILED}, "Jobs")


def _place(alert: Alert | StoredAlert) -> tuple[str, dict[str, Any], str]:
    match alert.code:
        case "queue_depth" | "queue_age":
            return "/jobs", {"queue": alert.subject, "status": "pending"}, "Waiting jobs"
        case "unknown_task":
            task = {} if not alert.subject else {"task": alert.subject}
            return "/jobs", {**task, "status": "pending"}, "Waiting jobs"
        case "worker_disabled" if alert.severity == "critical":
            return "/settings", {"key": "worker_enabled"}, "Setting"
        case "bad_setting":
            return "/settings", {"key": alert.subject}, "Setting"
        case code:
            return _PLACES.get(code, _ELSEWHERE)
