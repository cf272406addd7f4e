"""Where an alert can be mended: the page that shows what it is about. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidemill.dashboard.job_filter import FAILED
from tidemill.domain.alerts import Alert


class Concern(NamedTuple):
    """An alert in words for this screen, and where to go about it."""

    severity: str
    text: str
    since: Any
    path: str
    query: dict[str, Any]
    link: str


def concern(alert: Alert) -> Concern:
    """Where an alert leads. What its text says about the command line is left out: the link says it here.

    >>> from tidemill.domain.alerts import Severity
    >>> concern(Alert("dead_letters", Severity.WARNING, "3 more dead-lettered; see tidemill stats dead-letters", 3, 0))[1:5]
    ('3 more dead-lettered', None, '/jobs', {'state': 'dead_lettered'})
    """
    path, query, link = _place(alert)
    text = alert.text.partition("; see tidemill ")[0]
    return Concern(alert.severity.value, text[:1].upper() + text[1:], alert.since, path, query, link)


def _place(alert: Alert) -> tuple[str, dict[str, Any], str]:
    match alert.code:
        case "failure_rate":
            return "/errors", {}, "What failed"
        case "dead_letters":
            return "/jobs", {"state": "dead_lettered"}, "The dead letters"
        case "stuck_jobs":
            return "/jobs", {"state": "running"}, "What runs"
        case "queue_depth" | "queue_age":
            return "/jobs", {"queue": alert.subject, "state": "pending"}, "What waits"
        case "worker_disabled" if alert.severity == "critical":
            return "/settings", {"key": "worker_enabled"}, "The setting"
        case "worker_disabled":
            return "/queues", {}, "What is paused"
        case "bad_setting":
            return "/settings", {"key": alert.subject}, "The setting"
        case "no_workers" | "orphans" | "stuck_leader":
            return "/workers", {}, "The workers"
        case _:
            return "/jobs", {"state": FAILED}, "The jobs"
