"""The definition of a write path, which can be interrupted anywhere and repeated.

``job_paths``, ``flow_paths`` and ``other_paths`` define the paths; ``PATHS`` has all of them once those are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.faults.failpoints import Failpoints

from tidemill.domain.large_values import ARGUMENTS, BlobKey
from tidemill.stores.base import Store

Arrange = Callable[[Store], Any]
Act = Callable[[Store, Any], object]


@dataclass(frozen=True, slots=True)
class Path:
    """One write path. ``arrange`` prepares the store and returns plain data; ``act`` performs the write.

    ``fenced``: with a superseded token it writes nothing. ``repeats``: why a repetition may legitimately write again.
    ``by_hand``: it runs in a user's transaction, so it reaches the failpoints itself.
    """

    name: str
    verbs: frozenset[str]
    arrange: Arrange
    act: Act
    commits: int = 1  #: number of transactions; one per verb
    fenced: bool = False
    repeats: str | None = None
    by_hand: Callable[[Store, Any, Failpoints], object] | None = None


PATHS: dict[str, Path] = {}

LARGE = BlobKey(UUID("0197a000-0000-7000-8000-00000000000d"), ARGUMENTS)
"""The blob of the paths; its id is known even if no job or document has it."""


def path(name: str, verbs: str, arrange: Arrange, act: Act, **more: Any) -> None:
    """Register a path."""
    assert name not in PATHS
    PATHS[name] = Path(name, frozenset(verbs.split()), arrange, act, **more)


READS = frozenset({
    "lanes", "get", "jobs", "count", "held", "expired", "executions", "logs", "checkpoints", "workers", "orphans", "overdue",
    "leases", "orders", "settings", "pauses", "archivable", "archived", "archived_due", "ended_beyond", "search_archive", "definitions", "definition_versions",
    "schedules", "due", "fires", "last_fires", "active_jobs", "rules", "gates", "uses", "depth", "audit", "keys", "ended_by",
    "times_by", "ended_ever", "declared", "declared_tasks", "placed", "outgoing", "outgoing_starts", "heartbeats", "release_of", "standing", "series", "series_by", "failure_groups", "failure_series", "failure_counts", "error_marks", "deploys", "depths", "measure_depths", "depth_series", "holding", "holders", "lately", "crowd", "backlogs", "blob_parts", "orphan_blobs",
    "unreachable", "edges_of", "joins_of", "flow", "flows", "flow_jobs", "group_jobs", "group_counts", "due_flows", "flow_documents",
    "empty_groups", "archived_flows", "search_archived_flows", "flow_totals", "stalled_flows", "still_unreachable",
    "signals", "waits", "questions", "unread_signals", "events", "archive_files", "archive_places", "archive_entries", "search_archive_entries", "audit_gaps",
    "sessions", "job_starts", "group_results", "sealed_rows", "stream", "stream_names", "reacting", "occurrences", "followed", "waiting_events", "event_backlogs", "stored_alerts", "search_logs", "schema", "server", "check", "now",
})  # fmt: skip
"""Verbs that change nothing."""

EXEMPT = {
    "drop_occurrences": "only in the transaction of the fire that used them; test_reactive_schedules interrupts it",
    "migrate": "each migration is one transaction; tests/stores interrupts it",
    "hold": "a lock that ends with its holder; writes nothing",
    "notify": "a hint that may be lost",
    "listen": "writes nothing",
    "rest": "closes idle connections; writes nothing",
    "close": "writes nothing",
    "transaction": "its writes reach the failpoints",
    "make_archive_months": "one statement that calls a function of the database; SQLite has no partitions",
    "drop_archive_months": "one statement that calls a function of the database; SQLite has no partitions",
    "steps_ahead": "the query of a step; tests/stores and tests/engine interrupt it",
}
"""Verbs that need no failpoint, and why."""
