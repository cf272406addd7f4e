"""The part of the store contract for moving a tenant's jobs to another store.

43. **A job is carried in three steps, and can be claimed in at most one store at any time.** ``receive`` stores a copy in
    the target that no worker can claim; ``withdraw`` deletes the job in the source, unless a worker has claimed it or anybody
    has changed it; only then does a ``move`` release the copy. After an interruption between two steps, the rows of both
    stores show which step comes next.
44. **A start counts in one store at most once.** ``receive_starts`` adds the starts of another store to the rates of this one.
    A start with the name and the instant of a stored one is not added again, so that the call may be repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.job import JobRow
from tidemill.domain.limits import Rules
from tidemill.domain.transfers import LimitStart, TransferJob


class TransferStore(ABC):
    """Jobs, definitions and counted starts that leave for another store, or come from one."""

    @abstractmethod
    def outgoing(self, tenant: str, *, limit: int) -> list[TransferJob]:
        """Jobs of a tenant that can be carried: pending ones in the order of their numbers, then scheduled ones by ``run_at``.

        A job that was claimed before, whose end is counted, or that has a large value or an unread signal, stays.
        """

    @abstractmethod
    def receive(
        self, jobs: Sequence[TransferJob], *, reason: str, now: datetime | None = None
    ) -> frozenset[UUID]:
        """Store copies as ``waiting`` jobs with this reason. Returns the ids that were new.

        ``run_at`` and ``created_at`` are those of the job. A job whose unique key is held here is stored without its key.
        """

    @abstractmethod
    def withdraw(self, jobs: Sequence[JobRow], *, tenant: str, reason: str | None = None) -> frozenset[UUID]:
        """Delete jobs that have not begun, with their unique keys, and record no end. Returns the deleted ids.

        A job stays unless it could be carried and still has this queue, priority, ``run_at`` and limits. With ``reason``,
        copies that wait for this reason are deleted as well.
        """

    @abstractmethod
    def forget_definitions(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        """Delete definitions without schedules, with all their versions. Returns those that existed."""

    @abstractmethod
    def outgoing_starts(self, tenant: str, *, since: datetime) -> list[LimitStart]:
        """Starts after this instant of ended jobs of a tenant, for each of their limits, by name and instant."""

    @abstractmethod
    def receive_starts(
        self, starts: Sequence[LimitStart], rules: Rules, *, now: datetime | None = None
    ) -> frozenset[str]:
        """Count these starts against the rates of their names. Returns the names of rates.

        A token bucket becomes as full as these starts alone would have made it, unless it is fuller.
        """
