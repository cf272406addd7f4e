"""The blob part of the store contract: large arguments and results.

Law 25. **A blob belongs to one job** and lives as long as a row or an archived document refers to it. ``delete`` and a finish that
keeps nothing delete the blobs of their jobs. ``forget`` marks them as archived, and ``release_blobs`` undoes that. A blob that is not
archived is an orphan if no job of its id is stored, or if it is the result of another execution than the job's last one. Rows that
name a place outside the database stay until the caller has deleted the object there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.large_values import BlobKey


class OrphanBlob(NamedTuple):
    """A blob that no job needs, and its place outside the database, if it has one."""

    key: BlobKey
    place: str | None


class BlobStore(ABC):
    """Blobs: texts in parts, or the places of objects outside the database."""

    blob_url: str | None = None
    """The directory or bucket for large values; None: the table."""

    @abstractmethod
    def put_blob(
        self, key: BlobKey, parts: Iterable[str], *, place: str | None = None, now: datetime | None = None
    ) -> None:
        """Write a blob; an existing one is replaced. With a ``place`` there are no parts: the object there is the content."""

    @abstractmethod
    def blob_parts(self, key: BlobKey, *, first: int = 0, limit: int = 4) -> list[str]:
        """Some parts of a blob in order, from the given one on; empty after the last one, or if there is no such blob."""

    @abstractmethod
    def orphan_blobs(
        self, older_than: timedelta, limit: int, *, now: datetime | None = None
    ) -> list[OrphanBlob]:
        """Orphans that were written longer ago than that, the oldest first. Read only."""

    @abstractmethod
    def delete_blobs(self, keys: Sequence[BlobKey]) -> None:
        """Delete these blobs, whether or not something refers to them."""

    @abstractmethod
    def release_blobs(self, ids: Collection[UUID]) -> None:
        """Mark the blobs of these jobs as no longer archived: the documents were purged, or the jobs were restored.

        The next sweep deletes those that no stored job needs. Whatever purges documents, from this store, another one or
        files, calls this on the store of the jobs.
        """

    @abstractmethod
    def drop_blobs(self, ids: Collection[UUID]) -> None:
        """Delete the blobs of jobs that were erased with all their documents; the sweep finds those outside the database."""
