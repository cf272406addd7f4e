"""Links from alerts to the pages where an operator can act on them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidemill.dashboard.job_filter import FAILED
from tidemill.domain.alerts import Alert


class AlertLink(NamedTuple):
    """The text of an alert for this page, and the link to follow."""

    severity: str
    text: str
    since: Any
    path: str
    query: dict[str, Any]
    link: str


def concern(alert: Alert) -> AlertLink:
    """Return the text and link for an alert.

    The command-line hint in the alert's text is dropped, because the link replaces it.

    >>> from tidemill.domain.alerts import Severity
    >>> concern(Alert("dead_letters", Severity.WARNING, "3 jobs were dead-lettered; see tidemill stats", 3, 0))[1:5]
    ('3 jobs were dead-lettered', None, '/jobs', {'status': 'dead_lettered'})
    """
    path, query, link = _place(alert)
    text = alert.text.partition("; see tidemill ")[0]
    return AlertLink(alert.severity.value, text[:1].upper() + text[1:], alert.since, path, query, link)


def _place(alert: Alert) -> tuple[str, dict[str, Any], str]:
    match alert.code:
        case "failure_rate":
            return "/errors", {}, "Failed jobs"
        case "dead_letters":
            return "/jobs", {"status": "dead_lettered"}, "Dead letters"
        case "stuck_jobs":
            return "/jobs", {"status": "running"}, "Running jobs"
        case "queue_depth" | "queue_age":
            return "/jobs", {"queue": alert.subject, "status": "pending"}, "Waiting jobs"
        case "worker_disabled" if alert.severity == "critical":
            return "/settings", {"key": "worker_enabled"}, "Setting"
        case "worker_disabled":
            return "/queues", {}, "Pauses"
        case "bad_setting":
            return "/settings", {"key": alert.subject}, "Setting"
        case "no_workers" | "lost_workers" | "orphans" | "stuck_leader":
            return "/workers", {}, "Workers"
        case _:
            return "/jobs", {"status": FAILED}, "Jobs"
