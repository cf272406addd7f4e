"""The catalogue of archive files in the SQL store."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from tidemill.domain.archive_files import ArchiveEntry, ArchiveFile, ArchiveFrame, Manifest
from tidemill.domain.filters import Page, Sort, encode_cursor, page_size
from tidemill.stores.archive_files import ArchiveFileStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.job_rows import dump, page_takes, tenant_of

_LISTS = ("tenants", "tasks", "states")
_FIELDS = (
    "id", "place", "path", "tier", "format", "rows", "bytes", "first_id", "last_id", "first_ended_at", "last_ended_at",
    "archived_at",
)  # fmt: skip


class SqlArchiveFiles(SqlPart, ArchiveFileStore):
    """The verbs of the catalogue."""

    def add_archive_file(self, manifest: Manifest) -> None:
        file, entries = manifest.file, manifest.entries
        takes: dict[str, object] = {name: getattr(file, name) for name in _FIELDS}
        takes["checksum"] = file.sha256
        takes |= {name: dump(sorted(getattr(file, name))) for name in _LISTS}
        takes["frames"] = dump([list(frame) for frame in file.frames])
        with self._db.transaction():
            self.remove_archive_files(manifest.replaces)
            self._db.run("put_archive_file", takes)
            if entries:
                columns = {name: [getattr(entry, name) for entry in entries] for name in ArchiveEntry._fields}
                self._db.run("put_archive_entries", None, columns)

    def remove_archive_files(self, files: Collection[UUID]) -> None:
        if files:
            self._db.run("remove_archive_files", {"files": list(files)})

    def archive_files(
        self,
        place: str,
        *,
        files: Collection[UUID] | None = None,
        after: UUID | None = None,
        tier: str | None = None,
        ended_by: datetime | None = None,
    ) -> list[ArchiveFile]:
        if files is not None and not files:
            return []
        takes = {
            "place": place,
            "files": None if files is None else list(files),
            "after": after,
            "tier": tier,
            "ended_by": ended_by,
        }
        return [_load(row) for row in self._db.run("archive_files", takes)]

    def archive_places(self) -> list[str]:
        return [row[0] for row in self._db.run("archive_places")]

    def archive_entries(self, place: str, ids: Collection[UUID]) -> list[ArchiveEntry]:
        if not ids:
            return []
        rows = self._db.run("archive_entries", {"place": place, "ids": list(ids)})
        return [ArchiveEntry(*row) for row in rows]

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
        one = tenant_of(tenant)
        takes = page_takes(sort, page_size(limit), after)
        takes |= {"place": place, "tier": tier, "task": None if task is None else dump(task)}
        takes["tenant"] = None if one is None else dump(one)
        rows = self._db.run("search_archive_entries", takes, flags=(sort.value,))
        entries = [ArchiveEntry(*row) for row in rows[:limit]]
        return Page(entries, encode_cursor(sort, entries[-1].id) if len(rows) > limit else None)


def _load(row: Row) -> ArchiveFile:
    tenants, tasks, states = (frozenset(json.loads(text)) for text in row[12:15])
    frames = tuple(ArchiveFrame(*frame) for frame in json.loads(row[15]))
    return ArchiveFile(*(*row[:12], tenants, tasks, states, frames, row[16]))
