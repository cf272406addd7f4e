"""The part of the store contract that catalogues archive files.

A place outside of the store, such as a bucket, holds the documents. The catalogue says which file and which part of it hold
a job, so that a reader needs one look-up and one ranged read. The manifests in the place can rebuild it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from tidemill.domain.archive_files import ArchiveEntry, ArchiveFile, Manifest
from tidemill.domain.filters import Page, Sort


class ArchiveFileStore(ABC):
    """The catalogue of archive files."""

    @abstractmethod
    def add_archive_file(self, manifest: Manifest) -> None:
        """Add a file with its entries, and remove the files that it replaces. A known file stays as it is."""

    @abstractmethod
    def remove_archive_files(self, files: Collection[UUID]) -> None:
        """Remove files with their entries; unknown ones are ignored."""

    @abstractmethod
    def archive_files(
        self,
        place: str,
        *,
        files: Collection[UUID] | None = None,
        after: UUID | None = None,
        tier: str | None = None,
        ended_by: datetime | None = None,
    ) -> list[ArchiveFile]:
        """The files of a place, by the end of their first job.

        ``files`` restricts them to these ids and ``after`` to greater ones. With ``ended_by``, at least one of their jobs ended
        at or before that instant.
        """

    @abstractmethod
    def archive_places(self) -> list[str]:
        """The places that have files, in the order of their names."""

    @abstractmethod
    def archive_entries(self, place: str, ids: Collection[UUID]) -> list[ArchiveEntry]:
        """The entries of these jobs in a place, by id; of several files with the same job, the newest file first."""

    @abstractmethod
    def search_archive_entries(
        self,
        place: str,
        *,
        tenant: str,
        task: str | None = None,
        tier: str | None = None,
        sort: Sort = Sort.NEWEST,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[ArchiveEntry]:
        """One page of the entries of files that may hold jobs of this tenant and task, by id."""
