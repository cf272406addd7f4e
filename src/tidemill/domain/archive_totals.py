"""Totals of archiving per policy, as plain data stored with the archive lease.

Totals only rise. They live in the store, so every process reads the same values and they survive restarts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.retention import ArchivedJob, Position, Selection, fingerprint

LEASE = "archive"
"""The lease that a process holds while it archives, so that only one archives at a time."""

BOUNDS = (0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0)
"""Upper bounds, in seconds, of the run-time buckets; one more bucket counts longer runs."""

MOST_RUNS = 10
"""Number of runs that the lease keeps."""

MOST_POLICIES = 50
"""Number of policies with separate totals."""


@dataclass(slots=True)
class PolicySums:
    """Totals of one policy."""

    policy: str
    tier: str
    statuses: dict[str, int] = field(default_factory=dict)  #: jobs archived, by the state they ended in
    verified: int = 0  #: copies that were read back and matched
    failed: int = 0  #: copies that did not match; their jobs were kept
    changed: int = 0  #: jobs that were reopened during the run and kept
    bytes: int = 0  #: size of the archived documents
    age: float = 0.0  #: seconds between the end of a job and its archiving, summed
    errors: int = 0  #: runs that ended with a store error
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0
    last_at: str | None = None
    mismatch_at: str | None = None  #: when a copy last differed; None after a run without a difference
    cursor: str | None = None  #: how far a policy has copied that leaves the originals

    @property
    def archived(self) -> int:
        """Jobs that were removed from the live tables."""
        return sum(self.statuses.values())

    @property
    def runs(self) -> int:
        """Runs that archived something."""
        return sum(self.buckets)

    def moved(self, gone: Iterable[ArchivedJob], at: datetime) -> None:
        """Count documents whose originals were deleted."""
        for document in gone:
            state = document.state.value
            self.statuses[state] = self.statuses.get(state, 0) + 1
            self.bytes += len(document.document)  # documents are ASCII, so characters are bytes
            self.age += max((at - document.finished_at).total_seconds(), 0.0)
        self.last_at = at.isoformat()

    def ran(self, took: timedelta) -> None:
        """Count one run of this policy and its duration."""
        seconds = max(took.total_seconds(), 0.0)
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def copy(self) -> PolicySums:
        """An independent copy."""
        found = PolicySums(self.policy, self.tier)
        for name in _NUMBERS:
            setattr(found, name, getattr(self, name))
        for name in _TEXTS:
            setattr(found, name, getattr(self, name))
        found.statuses, found.buckets = dict(self.statuses), list(self.buckets)
        return found

    def copied(self, selection: Selection, last: Position) -> None:
        """Record how far the jobs of a selection have been copied."""
        self.cursor = f"{_digest(selection)} {last.ended_at.isoformat()} {last.id}"

    def position(self, selection: Selection) -> Position | None:
        """Return how far the jobs of this selection have been copied; None for a selection with other conditions."""
        words = (self.cursor or "").split(" ")
        if len(words) != 3 or words[0] != _digest(selection):
            return None
        return Position(datetime.fromisoformat(words[1]), UUID(words[2]))

    def data(self) -> dict[str, object]:
        """The totals as lease metadata."""
        return {
            "tier": self.tier,
            "statuses": dict(self.statuses),
            "buckets": list(self.buckets),
            **{name: getattr(self, name) for name in (*_TEXTS, *_NUMBERS)},
        }


_NUMBERS = ("verified", "failed", "changed", "bytes", "age", "errors", "seconds")
_TEXTS = ("last_at", "mismatch_at", "cursor")


def _digest(selection: Selection) -> str:
    """A short fingerprint of the conditions of a selection."""
    rule = selection.rule
    parts = (selection.tier, sorted(rule.states), sorted(rule.tasks), sorted(rule.tenants))
    return fingerprint(repr(parts))[:16]


def read_sums(metadata: Mapping[str, object]) -> dict[str, PolicySums]:
    """The totals in a lease's metadata, by policy; unreadable values count as zero."""
    policies = metadata.get("policies")
    found: dict[str, PolicySums] = {}
    for policy, data in policies.items() if isinstance(policies, Mapping) else ():
        if not isinstance(data, Mapping) or len(found) >= MOST_POLICIES:
            continue
        sums = found[str(policy)] = PolicySums(str(policy), str(data.get("tier", "")))
        for name in _NUMBERS:
            value = data.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                setattr(sums, name, value)
        statuses, buckets = data.get("statuses"), data.get("buckets")
        for name in _TEXTS:
            text = data.get(name)
            setattr(sums, name, text if isinstance(text, str) else None)
        if isinstance(statuses, Mapping):
            sums.statuses = {str(name): count for name, count in statuses.items() if isinstance(count, int)}
        if isinstance(buckets, Sequence) and len(buckets) == len(sums.buckets):
            sums.buckets = [count if isinstance(count, int) else 0 for count in buckets]
    return found


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The result of one run, as the lease keeps it."""

    at: datetime  #: when it began
    took: timedelta
    archived: int
    failed: int = 0
    errors: int = 0  #: policies that ended with an error
    more: bool = False  #: whether due jobs were left

    def data(self) -> dict[str, object]:
        """The record as lease metadata."""
        return {
            "at": self.at.isoformat(),
            "took": self.took.total_seconds(),
            "archived": self.archived,
            "failed": self.failed,
            "errors": self.errors,
            "more": self.more,
        }


def read_runs(metadata: Mapping[str, object]) -> list[RunRecord]:
    """The latest runs in a lease's metadata, the newest first; unreadable records are left out."""
    records = metadata.get("runs")
    found: list[RunRecord] = []
    for record in records if isinstance(records, Sequence) and not isinstance(records, str) else ():
        try:
            found.append(
                RunRecord(
                    datetime.fromisoformat(record["at"]),
                    timedelta(seconds=float(record["took"])),
                    int(record["archived"]),
                    int(record.get("failed", 0)),
                    int(record.get("errors", 0)),
                    bool(record.get("more", False)),
                )
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            continue
    return found[:MOST_RUNS]


def last_run(metadata: Mapping[str, object]) -> RunRecord | None:
    """The latest run."""
    return next(iter(read_runs(metadata)), None)


def lease_data(
    sums: Mapping[str, PolicySums], *, at: datetime, took: timedelta, runs: Sequence[RunRecord] = ()
) -> dict[str, object]:
    """The lease metadata: the totals, and the generic duty report that every lease carries."""
    return {
        "duties": {
            LEASE: {
                "last_tick": at.isoformat(),
                "items": sum(total.archived for total in sums.values()),
                "errors": sum(total.failed + total.errors for total in sums.values()),
                "last_error": None,
                "took_ms": round(took.total_seconds() * 1000, 3),
            }
        },
        "policies": {name: total.data() for name, total in sums.items()},
        "runs": [run.data() for run in runs[:MOST_RUNS]],
    }
