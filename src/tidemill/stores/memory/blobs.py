"""Blobs in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.large_values import ARGUMENTS, BlobKey
from tidemill.stores.blobs import BlobStore, OrphanBlob
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import BlobRow, State


class MemoryBlobs(MemoryPart, BlobStore):
    """Large values of jobs."""

    def put_blob(
        self, key: BlobKey, parts: Iterable[str], *, place: str | None = None, now: datetime | None = None
    ) -> None:
        content = tuple(parts) if place is None else ()
        with self._open() as state:
            state.blobs.setdefault(key.job_id, {})[key.number] = BlobRow(content, place, self._at(now))

    def blob_parts(self, key: BlobKey, *, first: int = 0, limit: int = 4) -> list[str]:
        with self._open() as state:
            row = state.blobs.get(key.job_id, {}).get(key.number)
            return [] if row is None else list(row.parts[first : first + limit])

    def orphan_blobs(
        self, older_than: timedelta, limit: int, *, now: datetime | None = None
    ) -> list[OrphanBlob]:
        with self._open() as state:
            written_by = self._at(now) - older_than
            orphans = sorted(
                (row.created_at, BlobKey(id, number), row.place or "")
                for id, rows in state.blobs.items()
                for number, row in rows.items()
                if not row.archived and row.created_at <= written_by and not _is_needed(state, id, number)
            )
            return [OrphanBlob(key, place or None) for _, key, place in orphans[: max(limit, 0)]]

    def delete_blobs(self, keys: Sequence[BlobKey]) -> None:
        with self._open() as state:
            for key in keys:
                rows = state.blobs.get(key.job_id, {})
                rows.pop(key.number, None)
                if not rows:
                    state.blobs.pop(key.job_id, None)

    def release_blobs(self, ids: Collection[UUID]) -> None:
        with self._open() as state:
            for id in ids:
                state.mark_blobs(id, archived=False)

    def drop_blobs(self, ids: Collection[UUID]) -> None:
        with self._open() as state:
            for id in ids:
                state.mark_blobs(id, archived=False)
                state.remove_blobs(id)


def _is_needed(state: State, id: UUID, number: int) -> bool:
    job = state.jobs.get(id)
    return job is not None and number in (ARGUMENTS, job.token)
