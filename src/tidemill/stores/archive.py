"""The archive part of the store contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import JobFilter, Page, Sort
from tidemill.domain.retention import ArchivedJob, ArchivePolicy


class ArchiveStore(ABC):
    """Archive tiers: an ended job is copied to a document, and deleted after the copy is verified."""

    @abstractmethod
    def archivable(self, policy: ArchivePolicy, *, now: datetime | None = None) -> list[ArchivedJob]:
        """Up to ``policy.batch`` ended jobs that the policy selects, the longest ended first, as documents. Read only."""

    @abstractmethod
    def put_archive(self, documents: Sequence[ArchivedJob], *, now: datetime | None = None) -> None:
        """Write documents; an existing one is replaced (a resumed run, or a reopened job)."""

    @abstractmethod
    def archived(self, ids: Collection[UUID], *, tenant: str) -> list[ArchivedJob]:
        """The stored documents with these ids, by id."""

    @abstractmethod
    def forget(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        """Delete the originals of these documents, each only if it is unchanged since the copy (same token, same end)."""

    @abstractmethod
    def search_archive(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[ArchivedJob]:
        """One page of archived jobs. Reference, tag and metadata are inside the document and cannot be filtered by."""

    @abstractmethod
    def purge_archive(self, ended_before: datetime, *, tier: str, limit: int) -> int:
        """Delete up to ``limit`` documents of a tier whose jobs ended before this instant. Returns the number."""
