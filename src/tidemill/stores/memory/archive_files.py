"""The catalogue of archive files in memory."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from tidemill.domain.archive_files import ArchiveEntry, ArchiveFile, Manifest
from tidemill.domain.filters import ALL_TENANTS, Page, Sort
from tidemill.stores.archive_files import ArchiveFileStore
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.filters import page_of
from tidemill.stores.memory.state import State


class MemoryArchiveFiles(MemoryPart, ArchiveFileStore):
    """Files and entries by the id of the file."""

    def add_archive_file(self, manifest: Manifest) -> None:
        with self._open() as state:
            _remove(state, manifest.replaces)
            state.archive_files.setdefault(manifest.file.id, manifest)

    def remove_archive_files(self, files: Collection[UUID]) -> None:
        with self._open() as state:
            _remove(state, files)

    def archive_files(
        self,
        place: str,
        *,
        files: Collection[UUID] | None = None,
        after: UUID | None = None,
        tier: str | None = None,
        ended_by: datetime | None = None,
    ) -> list[ArchiveFile]:
        with self._open() as state:
            rows = [
                file
                for file in (manifest.file for manifest in state.archive_files.values())
                if file.place == place
                and (files is None or file.id in files)
                and (after is None or file.id > after)
                and tier in (None, file.tier)
                and (ended_by is None or file.first_ended_at <= ended_by)
            ]
            return sorted(rows, key=lambda file: (file.first_ended_at, file.id))

    def archive_places(self) -> list[str]:
        with self._open() as state:
            return sorted({manifest.file.place for manifest in state.archive_files.values()})

    def archive_entries(self, place: str, ids: Collection[UUID]) -> list[ArchiveEntry]:
        wanted = set(ids)
        with self._open() as state:
            rows = [entry for entry in _entries(state, place) if entry.id in wanted]
            return sorted(rows, key=lambda entry: (entry.id, -entry.file.int))

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
        with self._open() as state:
            files = {id: manifest.file for id, manifest in state.archive_files.items()}
            rows = [
                entry
                for entry in _entries(state, place)
                if (tenant == ALL_TENANTS or tenant in files[entry.file].tenants)
                and (task is None or task in files[entry.file].tasks)
                and tier in (None, files[entry.file].tier)
            ]
            rows.sort(key=lambda entry: entry.file, reverse=True)
            return page_of(rows, lambda entry: entry.id, sort=sort, limit=limit, after=after)


def _entries(state: State, place: str) -> list[ArchiveEntry]:
    return [
        entry
        for manifest in state.archive_files.values()
        if manifest.file.place == place
        for entry in manifest.entries
    ]


def _remove(state: State, files: Collection[UUID]) -> None:
    for id in files:
        state.archive_files.pop(id, None)
