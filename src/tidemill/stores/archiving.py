"""The part of the store contract that is about tiers. It keeps documents as it is given them; what is due, a policy says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import JobFilter, Page, Sort
from tidemill.domain.retention import ArchivedJob, ArchivePolicy


class Archive(ABC):
    """Tiers: a finished job leaves as a document; the copy is verified before the original goes."""

    @abstractmethod
    def archivable(self, policy: ArchivePolicy, *, now: datetime | None = None) -> list[ArchivedJob]:
        """Up to ``policy.batch`` ended jobs the policy is due for, the longest ended first, as documents. A read."""

    @abstractmethod
    def put_archive(self, documents: Sequence[ArchivedJob], *, now: datetime | None = None) -> None:
        """Write documents; one that is there already is replaced (the move is resumed, or the job was reopened)."""

    @abstractmethod
    def archived(self, ids: Collection[UUID], *, tenant: str) -> list[ArchivedJob]:
        """The documents of these ids that there are, by id, as they are stored."""

    @abstractmethod
    def forget(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        """Remove the originals of these documents, each only if it still is what was copied (same token, same end)."""

    @abstractmethod
    def search_archive(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[ArchivedJob]:
        """One page of archived jobs. Reference, tag and metadata are inside the document and cannot be asked for here."""

    @abstractmethod
    def purge_archive(self, ended_before: datetime, *, tier: str, limit: int) -> int:
        """Remove up to ``limit`` documents of a tier whose jobs ended before then; how many."""
