"""The archive part of the store contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import JobFilter, Page, Sort
from tidemill.domain.retention import ArchivedJob, Position, Selection


class ArchiveStore(ABC):
    """Archive tiers: an ended job is copied to a document, and deleted after the copy is verified."""

    @abstractmethod
    def archivable(self, selection: Selection, *, policy: str, tier: str) -> list[ArchivedJob]:
        """Ended jobs of a selection of the live tables as documents, the longest ended first. Read only.

        ``policy`` and ``tier`` are written into the documents.
        """

    @abstractmethod
    def archived_due(self, selection: Selection) -> list[ArchivedJob]:
        """The documents of a selection of an archive tier, the longest ended first. Read only."""

    @abstractmethod
    def ended_beyond(self, selection: Selection, newest: int) -> Position | None:
        """The last ended job of a selection without its ``newest`` ones; None if there are no others. Read only.

        The limit of the selection does not apply.
        """

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
    def remove_archived(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        """Delete these documents, each only if its tier and fingerprint are unchanged. Returns the deleted ids."""
