"""An independent account of limits: who is held under which names, and what began when. It shares no code with any store.

Rules may be changed at any time. A lowered one takes nobody's job away: then nothing more is claimed until there is room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.job import Claim
from tidemill.domain.limits import LimitKind, Rule, Use

_SLACK = timedelta(microseconds=1)  # what a claim's share of a bucket may be rounded by


class Counted:
    """What is held of each name, and what began under it since its rule was last changed."""

    def __init__(self) -> None:
        self.names: dict[UUID, frozenset[str]] = {}
        self.held: dict[UUID, tuple[str, ...]] = {}
        self.begun: dict[str, list[tuple[datetime, int]]] = {}

    def accept(self, id: UUID, names: Collection[str]) -> None:
        """A job that counts against these names was stored."""
        self.names[id] = frozenset(names)

    def labelled(self, ids: Collection[UUID], name: str) -> None:
        """These jobs count against one more."""
        for id in ids:
            self.names[id] |= {name}

    def ruled(self, changed: Collection[str]) -> None:
        """Rules were changed: what began under the old ones is no evidence against the new."""
        for name in changed:
            self.begun.pop(name, None)

    def claimed(self, claims: Sequence[Claim], rules: Mapping[str, Rule], now: datetime) -> None:
        """Jobs were claimed: each under all its names and perhaps more, and none beyond what a rule allows."""
        taken: Counter[str] = Counter()
        for claim in claims:
            names = claim.limits or ()
            assert self.names[claim.id] <= set(names), "claimed without counting a limit of its own"
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
            assert within <= rule.max, f"more than {rule.max} of {name} began within {rule.per}"
        elif rule.per is not None and rule.burst is not None:
            for place, (since_at, _) in enumerate(begun):
                parts = begun[place:]
                filled = (now - since_at + len(parts) * _SLACK) * rule.max // rule.per
                assert sum(number for _, number in parts) <= rule.burst + filled, f"{name} went too fast"

    def finished(self, ids: Collection[UUID]) -> None:
        """These are held no more."""
        for id in ids:
            del self.held[id]

    def used(self) -> Counter[str]:
        """How many are held of each name."""
        return Counter(name for names in self.held.values() for name in names)

    def check(self, uses: Sequence[Use]) -> None:
        """What the store counts is what is held."""
        used = self.used()
        assert {use.name: use.used for use in uses} == {use.name: used[use.name] for use in uses}
        assert set(used) <= {use.name for use in uses}
