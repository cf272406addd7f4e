"""The part of the store contract that brings archived jobs back, erases them, and maintains the archive's tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.retention import RestoredJob


class ArchiveControlStore(ABC):
    """Restoring and erasing archived jobs."""

    @abstractmethod
    def restore(self, jobs: Sequence[RestoredJob]) -> frozenset[UUID]:
        """Insert ended jobs with their executions and logs, each only if no live job has its id. Returns the inserted ids.

        Unique keys are not taken again; a ``move`` that reopens the job does that.
        """

    @abstractmethod
    def erase_archived(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        """Delete the documents of these jobs, and unique keys they still hold. Returns the ids of the documents."""

    @abstractmethod
    def scrub(self) -> None:
        """Overwrite deleted rows in the files of the store, as far as the store has a way to do so. Not in a transaction."""

    @abstractmethod
    def make_archive_months(self, *, now: datetime | None = None) -> int:
        """Make the partitions of this month and the next two; the number of new ones. Stores without partitions: 0."""

    @abstractmethod
    def drop_archive_months(self, tier: str, ended_before: datetime) -> int:
        """Drop every month whose documents are all of this tier and ended before this instant. Returns how many there were.

        Stores without partitions drop nothing and return 0.
        """
