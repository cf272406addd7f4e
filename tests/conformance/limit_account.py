"""An independent account of limits: held jobs and starts by name.

Rules may be changed at any time. A lowered rule takes no job away, but nothing more is claimed until the limit has room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.job import Claim
from tidemill.domain.limits import LimitKind, Rule, Use

# Rounding of a claim's share of a bucket.
_SLACK = timedelta(microseconds=1)


class LimitAccount:
    """Held jobs of each name, and starts since its rule was last changed."""

    def __init__(self) -> None:
        self.names: dict[UUID, frozenset[str]] = {}
        self.held: dict[UUID, tuple[str, ...]] = {}
        self.begun: dict[str, list[tuple[datetime, int]]] = {}

    def accept(self, id: UUID, names: Collection[str]) -> None:
        """Record a job with these limits."""
        self.names[id] = frozenset(names)

    def labelled(self, ids: Collection[UUID], name: str) -> None:
        """Record that these jobs were given another limit."""
        for id in ids:
            self.names[id] |= {name}

    def ruled(self, changed: Collection[str]) -> None:
        """Record changed rules: earlier starts do not count against the new ones."""
        for name in changed:
            self.begun.pop(name, None)

    def claimed(self, claims: Sequence[Claim], rules: Mapping[str, Rule], now: datetime) -> None:
        """Record claims: each counts against all its names, and none exceeds a rule."""
        taken: Counter[str] = Counter()
        for claim in claims:
            names = claim.limits or ()
            assert self.names[claim.id] <= set(names), "claimed without counting one of its limits"
            assert len(set(names)) == len(names)
            self.names[claim.id] = frozenset(names)
            self.held[claim.id] = names
            taken.update(names)
        for name, number in taken.items():
            self.begun.setdefault(name, []).append((now, number))
            if name in rules:
                self._allowed(name, rules[name], now)

    def _allowed(self, name: str, rule: Rule, now: datetime) -> None:
        begun = self.begun[name]
        if rule.kind is LimitKind.CONCURRENCY:
            assert self.used()[name] <= rule.max, f"more than {rule.max} of {name} are held"
        elif rule.per is not None and rule.burst is None:
            within = sum(number for at, number in begun if at > now - rule.per)
            assert within <= rule.max, f"more than {rule.max} of {name} started within {rule.per}"
        elif rule.per is not None and rule.burst is not None:
            for place, (since_at, _) in enumerate(begun):
                parts = begun[place:]
                filled = (now - since_at + len(parts) * _SLACK) * rule.max // rule.per
                assert sum(number for _, number in parts) <= rule.burst + filled, (
                    f"{name} exceeded its bucket"
                )

    def finished(self, ids: Collection[UUID]) -> None:
        """Record that these jobs are no longer held."""
        for id in ids:
            del self.held[id]

    def used(self) -> Counter[str]:
        """Return how many jobs are held of each name."""
        return Counter(name for names in self.held.values() for name in names)

    def check(self, uses: Sequence[Use]) -> None:
        """Compare the store's counters with the held jobs."""
        used = self.used()
        assert {use.name: use.used for use in uses} == {use.name: used[use.name] for use in uses}
        assert set(used) <= {use.name for use in uses}
