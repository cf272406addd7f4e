"""The part of the store contract that counts limits; ``stores.base`` has the other laws.

19. **A limit is counted from claims.** A claim from a lane with ``limits`` counts each job against every one of these names, in the
    same transaction, and every exit of the job from a worker's hands takes that back. What may be claimed is ``limits.room`` of the
    rule in the request (``limits.rule_of``) and of what is counted: no two claims at once ever get more than that together. A lane
    whose limits another claim counts at this very moment may yield nothing; whoever asks again gets it. A ``step`` whose request
    ``inherits`` claims no more of any name than its own ends give back: what is counted need not change, and nobody waits for it.
20. **A gate keeps nobody back behind it.** Jobs with limits stand in lanes of their own, which ``gates`` lists and ``lanes`` does
    not, so that those without are claimed as if there were no others.
21. **A pinned rule** was set by a person: ``put_rules`` of one that is not pinned leaves it as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from tidemill.domain.lanes import Lane, LaneKey
from tidemill.domain.limits import Rule, Rules, Use


class Limits(ABC):
    """Rules, and what is used of them."""

    @abstractmethod
    def rules(self) -> list[Rule]:
        """All rules by name."""

    @abstractmethod
    def put_rules(self, rules: Sequence[Rule], *, now: datetime | None = None) -> frozenset[str]:
        """Write rules; the names of those that are new or other than before."""

    @abstractmethod
    def drop_rules(self, names: Collection[str]) -> frozenset[str]:
        """Remove rules; the names that were there. What is counted stays counted."""

    @abstractmethod
    def gates(
        self, queues: Sequence[str] | None = None, *, limit: int = 500, after: LaneKey | None = None
    ) -> list[Lane]:
        """Lanes of pending jobs with limits, of the given queues or of all, each with its lowest number and its limits; the next
        ``limit`` of them after a lane, in the order of queue, tenant, priority (highest first) and gate.
        """

    @abstractmethod
    def uses(
        self,
        rules: Rules,
        names: Collection[str] | None = None,
        *,
        limit: int = 1000,
        now: datetime | None = None,
    ) -> list[Use]:
        """What is used of these names, in their order, those of which nothing is included; or of all names that are in use,
        the most used first.
        """

    @abstractmethod
    def change_breaker(
        self, name: str, before: str | None, after: str, *, now: datetime | None = None
    ) -> bool:
        """Write a breaker's state, if it is still the one that was read."""

    @abstractmethod
    def label(self, task: str, name: str, *, limit: int) -> int:
        """Have up to ``limit`` pending and scheduled jobs of a task count against one more limit; how many there were."""

    @abstractmethod
    def depth(self, *, queue: str | None = None, tenant: str | None = None, most: int) -> int:
        """How many jobs are pending in a queue, or of a tenant, or in all; ``most`` if there are more."""

    @abstractmethod
    def forget_uses(self, idle: timedelta, *, limit: int, now: datetime | None = None) -> int:
        """Remove counts at zero that nobody has touched for so long; how many there were."""
