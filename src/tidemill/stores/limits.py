"""The limits part of the store contract; ``stores.base`` has the other laws.

19. **A limit is counted from claims.** A claim from a lane with ``limits`` counts each job against every one of these names, in the
    same transaction, and every release of the job undoes that. The room for claims is ``limits.room`` of the rule in the request
    (``limits.rule_of``) and the counted use: concurrent claims together never exceed it. A lane whose limits another claim is
    counting at the same time may yield nothing; a later request gets the jobs. A ``step`` whose request ``handoff`` claims no more
    of any name than its own finishes release: the counts need not change, and no statement waits for their locks.
    **A rate-limited job starts when its claim was recorded**, by the store's clock. A worker that starts it much later calls
    ``redate``: the rate then counts it from that instant instead of its claim, or refuses it. A start in the future, because the
    clock was set back, is moved to the present by the next claim.
20. **Limited jobs never block unlimited ones.** Jobs with limits are in separate lanes, which ``gates`` lists and ``lanes`` does
    not, so that jobs without limits are claimed as if there were no others.
21. **A pinned rule** was set by a person: ``put_rules`` with an unpinned rule does not change it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.job import Claim
from tidemill.domain.lanes import Lane, LaneKey
from tidemill.domain.limits import Rule, Rules, Use


class Redated(NamedTuple):
    """Jobs that could not be redated: this worker no longer holds them, or a rate has no room for them now."""

    lost: frozenset[UUID]
    refused: frozenset[UUID]


class LimitRuleStore(ABC):
    """Stored rules of limits."""

    @abstractmethod
    def rules(self) -> list[Rule]:
        """All rules by name."""

    @abstractmethod
    def put_rules(self, rules: Sequence[Rule], *, now: datetime | None = None) -> frozenset[str]:
        """Write rules. Returns the names of those that are new or changed."""

    @abstractmethod
    def drop_rules(self, names: Collection[str]) -> frozenset[str]:
        """Delete rules. Returns the names that existed. Counts are kept."""


class LimitStore(ABC):
    """Lanes with limits, and the use of limits."""

    @abstractmethod
    def gates(
        self, queues: Sequence[str] | None = None, *, limit: int = 500, after: LaneKey | None = None
    ) -> list[Lane]:
        """Lanes of pending jobs with limits, of the given queues or of all, each with its lowest number and its limits: the next
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
        """The use of these names, in their order and including unused ones; or of all names in use, the most used first."""

    @abstractmethod
    def redate(
        self,
        claims: Sequence[Claim],
        rules: Rules,
        *,
        dating: Callable[[], object] | None = None,
        now: datetime | None = None,
    ) -> Redated:
        """Record the start of held jobs again: their rates count them from now instead of their claim.

        The records of refused jobs are removed, except from a token bucket, which stays as full as it is. ``dating`` is called
        just before, as for a ``ClaimRequest``.
        """

    @abstractmethod
    def change_breaker(
        self, name: str, before: str | None, after: str, *, now: datetime | None = None
    ) -> bool:
        """Write a breaker's state, if it is still the one that was read."""

    @abstractmethod
    def label(self, task: str, name: str, *, limit: int) -> int:
        """Add a limit to up to ``limit`` pending and scheduled jobs of a task. Returns the number of jobs."""

    @abstractmethod
    def depth(self, *, queue: str | None = None, tenant: str | None = None, most: int) -> int:
        """The number of pending jobs of a queue, of a tenant, or of all; at most ``most``."""

    @abstractmethod
    def forget_uses(self, idle: timedelta, *, limit: int, now: datetime | None = None) -> int:
        """Delete counts of zero that were unchanged for this long. Returns the number."""
