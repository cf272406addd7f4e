"""What archiving came to, policy by policy: sums that only rise, as plain data that a lease can carry. Pure arithmetic.

The sums are kept in the store, with the lease under which jobs are archived. So they are the same whichever process is asked, and
do not begin anew with each run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tidemill.domain.retention import ArchivedJob

LEASE = "archive"
"""The lease of whoever archives: one at a time, and only while it does."""

BOUNDS = (0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0)
"""The upper ends of the buckets in which the seconds of runs are counted; beyond the last is one more."""

MOST_POLICIES = 50
"""Policies that have sums of their own; there is always an end."""


@dataclass(slots=True)
class PolicySums:
    """What one policy has moved so far."""

    policy: str
    tier: str
    statuses: dict[str, int] = field(default_factory=dict)  #: jobs archived, by the state they ended in
    verified: int = 0  #: copies that were read back and found whole
    failed: int = 0  #: copies that were not; their jobs stayed
    changed: int = 0  #: jobs that were opened again meanwhile, and stayed
    bytes: int = 0  #: of the documents of those archived
    age: float = 0.0  #: seconds between their ends and their archiving, added up
    errors: int = 0  #: runs that the store ended
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    seconds: float = 0.0
    last_at: str | None = None

    @property
    def archived(self) -> int:
        """Jobs that left the live tables."""
        return sum(self.statuses.values())

    @property
    def runs(self) -> int:
        """Runs that had something to do."""
        return sum(self.buckets)

    def moved(self, gone: Iterable[ArchivedJob], at: datetime) -> None:
        """The originals of these documents are gone."""
        for document in gone:
            state = document.state.value
            self.statuses[state] = self.statuses.get(state, 0) + 1
            self.bytes += len(document.document)  # plain ASCII: characters are bytes
            self.age += max((at - document.finished_at).total_seconds(), 0.0)
        self.last_at = at.isoformat()

    def ran(self, took: timedelta) -> None:
        """A run of this policy took so long."""
        seconds = max(took.total_seconds(), 0.0)
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds

    def copy(self) -> PolicySums:
        """Another with the same numbers."""
        found = PolicySums(self.policy, self.tier)
        for name in _NUMBERS:
            setattr(found, name, getattr(self, name))
        found.statuses, found.buckets, found.last_at = dict(self.statuses), list(self.buckets), self.last_at
        return found

    def data(self) -> dict[str, object]:
        """As a lease carries it."""
        return {
            "tier": self.tier,
            "statuses": dict(self.statuses),
            "buckets": list(self.buckets),
            "last_at": self.last_at,
            **{name: getattr(self, name) for name in _NUMBERS},
        }


_NUMBERS = ("verified", "failed", "changed", "bytes", "age", "errors", "seconds")


def read_sums(metadata: Mapping[str, object]) -> dict[str, PolicySums]:
    """The sums that a lease carries, by policy; what cannot be read counts as nothing."""
    said = metadata.get("policies")
    found: dict[str, PolicySums] = {}
    for policy, facts in said.items() if isinstance(said, Mapping) else ():
        if not isinstance(facts, Mapping) or len(found) >= MOST_POLICIES:
            continue
        sums = found[str(policy)] = PolicySums(str(policy), str(facts.get("tier", "")))
        for name in _NUMBERS:
            value = facts.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                setattr(sums, name, value)
        statuses, buckets, last_at = facts.get("statuses"), facts.get("buckets"), facts.get("last_at")
        if isinstance(statuses, Mapping):
            sums.statuses = {str(name): count for name, count in statuses.items() if isinstance(count, int)}
        if isinstance(buckets, Sequence) and len(buckets) == len(sums.buckets):
            sums.buckets = [count if isinstance(count, int) else 0 for count in buckets]
        sums.last_at = last_at if isinstance(last_at, str) else None
    return found


def lease_facts(sums: Mapping[str, PolicySums], *, at: datetime, took: timedelta) -> dict[str, object]:
    """What the lease carries: the sums, and the same in the words in which every lease tells of its duties."""
    return {
        "duties": {
            LEASE: {
                "last_tick": at.isoformat(),
                "items": sum(each.archived for each in sums.values()),
                "errors": sum(each.failed + each.errors for each in sums.values()),
                "last_error": None,
                "took_ms": round(took.total_seconds() * 1000, 3),
            }
        },
        "policies": {name: each.data() for name, each in sums.items()},
    }
