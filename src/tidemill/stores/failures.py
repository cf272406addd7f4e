"""The part of the store contract for failures of jobs: their groups, and the marks of these.

Law 41. **Every execution that ends its job as a failure is recorded once**, by ``finish`` or ``step``, with the group and the
variant that ``failure_of`` computes. Deleting, retrying, archiving or restoring the job changes no count. A rejected review is a
decision of a person and no failure. ``merge_failures`` keeps the counts, and ``drop_failures`` deletes the oldest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from tidemill.domain.failures import ErrorMark, FailureCount, FailureGroup, FailurePart


class FailureStore(ABC):
    """The recorded failures by group, and the marks of the groups."""

    @abstractmethod
    def failure_groups(
        self,
        window: timedelta,
        *,
        tenant: str,
        fingerprint: str | None = None,
        task: str | None = None,
        limit: int = 100,
        now: datetime | None = None,
    ) -> list[FailureGroup]:
        """The groups with failures within the window, those with the most first; optionally only one group, or only failures of
        one task.
        """

    @abstractmethod
    def failure_series(
        self,
        window: timedelta,
        steps: int,
        *,
        tenant: str,
        fingerprints: Collection[str],
        now: datetime | None = None,
    ) -> dict[str, list[int]]:
        """The failures of these groups in each of the equal steps of the window, oldest first."""

    @abstractmethod
    def failure_counts(
        self,
        fingerprint: str,
        part: FailurePart,
        window: timedelta,
        *,
        tenant: str,
        limit: int = 20,
        now: datetime | None = None,
    ) -> list[FailureCount]:
        """The failures of one group within the window by variant, task or tenant, most first."""

    @abstractmethod
    def error_marks(self, *, tenant: str) -> list[ErrorMark]:
        """The marks of one tenant and those about all tenants; of every tenant for ``*``."""

    @abstractmethod
    def put_error_marks(self, marks: Sequence[ErrorMark], *, now: datetime | None = None) -> None:
        """Write marks, dated now, over those of the same tenants and groups."""

    @abstractmethod
    def merge_failures(self, before: datetime, *, limit: int = 5_000) -> int:
        """Merge at most ``limit`` failures before an instant whose job is no longer live, per hour, tenant, task and group. Their
        messages and variants are dropped. Returns how many were merged.
        """

    @abstractmethod
    def drop_failures(self, before: datetime) -> int:
        """Delete the failures before an instant, and return how many rows that were."""
