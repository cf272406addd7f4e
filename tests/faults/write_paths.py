"""What a write path is: something that changes the store, told so that it can be interrupted anywhere and done again.

The paths themselves stand in ``paths_of_jobs`` and ``paths_of_plans``; ``PATHS`` has all of them once those are imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemill.stores.base import Store
from tidemill.testing.failpoints import Failpoints

Arrange = Callable[[Store], Any]
Act = Callable[[Store, Any], object]


@dataclass(frozen=True, slots=True)
class Path:
    """One way of writing. ``arrange`` puts there what it needs and says so in plain data; ``act`` goes the way.

    ``fenced``: with a token that has passed on, it writes nothing. ``repeats``: why doing it twice rightly does it twice, where
    it does. ``by_hand``: its transaction is the user's own, so that it passes the places itself.
    """

    name: str
    verbs: frozenset[str]
    arrange: Arrange
    act: Act
    commits: int = 1  #: how many transactions it takes; one, as a verb is atomic, unless it is several verbs
    fenced: bool = False
    repeats: str | None = None
    by_hand: Callable[[Store, Any, Failpoints], object] | None = None


PATHS: dict[str, Path] = {}


def path(name: str, verbs: str, arrange: Arrange, act: Act, **more: Any) -> None:
    """Write a path down."""
    assert name not in PATHS
    PATHS[name] = Path(name, frozenset(verbs.split()), arrange, act, **more)


READS = frozenset({
    "lanes", "get", "jobs", "count", "held", "expired", "executions", "logs", "checkpoints", "workers", "orphans", "overdue",
    "leases", "orders", "settings", "pauses", "archivable", "archived", "search_archive", "definitions", "definition_versions",
    "schedules", "due", "fires", "last_fires", "active_jobs", "rules", "gates", "uses", "depth", "audit", "keys", "ended_by",
    "standing", "series", "troubles", "depths", "holding", "holders", "lately", "crowd", "schema", "check", "now",
})  # fmt: skip
"""Verbs that change nothing."""

EXEMPT = {
    "migrate": "each migration is one transaction, interrupted by tests of its own (tests/stores)",
    "hold": "a lock that goes with its holder; nothing is written",
    "notify": "a hint, which may be lost",
    "listen": "nothing is written",
    "close": "nothing is written",
    "transaction": "what is written in it passes the places",
    "steps_ahead": "the statement of a step, cut off by tests of its own (tests/stores, tests/engine)",
}
"""Verbs that need no failpoint, and why."""
