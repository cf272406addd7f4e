"""The contract of a place that holds archived jobs, and its implementation by a store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS, JobFilter, Page, Sort
from tidemill.domain.retention import ArchivedJob, Position, Selection
from tidemill.stores.base import Store


@dataclass(frozen=True, slots=True)
class Receipt:
    """Proof of one write: the documents that were written, and where the place put them.

    ``location`` is for the place itself, for example the name of a file.
    """

    ids: tuple[UUID, ...]
    location: str = ""


class ArchivePlace(Protocol):
    """A place that holds archived jobs in one or more tiers, each job at most once."""

    @property
    def store(self) -> Store | None:
        """The store whose transactions this place joins; None for a place outside of a store."""

    def put(self, documents: Sequence[ArchivedJob], *, now: datetime | None = None) -> Receipt:
        """Write documents. Idempotent: the same documents again change nothing, and a newer document replaces an older one."""

    def read(self, receipt: Receipt) -> list[ArchivedJob]:
        """Read everything that a write stored, from the place itself and not from memory, for its verification."""

    def get(self, ids: Collection[UUID], *, tenant: str) -> list[ArchivedJob]:
        """Return the documents with these ids, by id."""

    def search(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[ArchivedJob]:
        """Return one page of the documents that match."""

    def due(self, selection: Selection) -> list[ArchivedJob]:
        """Return the documents of a selection of one tier, the longest ended first."""

    def beyond(self, selection: Selection, newest: int) -> Position | None:
        """Return the last ended job of a selection without its ``newest`` ones; None if there are no others."""

    def remove(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        """Delete these documents, each only if its tier and fingerprint are unchanged. Returns the deleted ids."""

    def erase(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        """Delete every copy of these jobs, whatever its tier. Returns the deleted ids."""


@runtime_checkable
class FileCatalogue(Protocol):
    """A place with a catalogue of its files."""

    url: str

    def recover(self) -> None:
        """Add committed files to the catalogue that a crashed run wrote."""

    def rebuild(self) -> int:
        """Rebuild the catalogue. Returns the number of files."""


class StorePlace:
    """The archive tables of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def store(self) -> Store | None:
        """The store itself."""
        return self._store

    def put(self, documents: Sequence[ArchivedJob], *, now: datetime | None = None) -> Receipt:
        """Write documents into the archive tables."""
        self._store.put_archive(documents, now=now)
        return Receipt(tuple(document.id for document in documents))

    def read(self, receipt: Receipt) -> list[ArchivedJob]:
        """Read the written documents back."""
        return self._store.archived(receipt.ids, tenant=ALL_TENANTS)

    def get(self, ids: Collection[UUID], *, tenant: str) -> list[ArchivedJob]:
        """Return the documents with these ids, by id."""
        return self._store.archived(ids, tenant=tenant)

    def search(
        self, where: JobFilter, *, sort: Sort = Sort.NEWEST, limit: int = 100, after: str | None = None
    ) -> Page[ArchivedJob]:
        """Return one page of the documents that match."""
        return self._store.search_archive(where, sort=sort, limit=limit, after=after)

    def due(self, selection: Selection) -> list[ArchivedJob]:
        """Return the documents of a selection of one tier, the longest ended first."""
        return self._store.archived_due(selection)

    def beyond(self, selection: Selection, newest: int) -> Position | None:
        """Return the last ended job of a selection without its ``newest`` ones; None if there are no others."""
        return self._store.ended_beyond(selection, newest)

    def remove(self, documents: Sequence[ArchivedJob]) -> frozenset[UUID]:
        """Delete these documents, each only if its tier and fingerprint are unchanged."""
        return self._store.remove_archived(documents)

    def erase(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        """Delete the documents of these jobs."""
        return self._store.erase_archived(ids, tenant=tenant)
