"""Blobs in the SQL store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.large_values import BlobKey
from tidemill.stores.blobs import BlobStore, OrphanBlob
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.job_rows import at_most


class SqlBlobs(SqlPart, BlobStore):
    """put_blob, blob_parts, orphan_blobs, delete_blobs, drop_blobs."""

    def put_blob(
        self, key: BlobKey, parts: Iterable[str], *, place: str | None = None, now: datetime | None = None
    ) -> None:
        rows: Iterable[tuple[int, str | None]] = enumerate(parts) if place is None else [(0, None)]
        with self._db.transaction():
            self.delete_blobs([key])
            for part, content in rows:
                columns: dict[str, list[object]] = {
                    "job_id": [key.job_id],
                    "number": [key.number],
                    "part": [part],
                    "place": [place],
                    "content": [content],
                }
                self._db.run("put_blob", {"now": now}, columns)

    def blob_parts(self, key: BlobKey, *, first: int = 0, limit: int = 4) -> list[str]:
        takes = {"job_id": key.job_id, "number": key.number, "first": first, "limit": limit}
        return [content for (content,) in self._db.run("blob_parts", takes)]

    def orphan_blobs(
        self, older_than: timedelta, limit: int, *, now: datetime | None = None
    ) -> list[OrphanBlob]:
        rows = self._db.run("orphan_blobs", {"now": now, "older_than": older_than, "limit": at_most(limit)})
        return [OrphanBlob(BlobKey(job_id, number), place) for job_id, number, place in rows]

    def delete_blobs(self, keys: Sequence[BlobKey]) -> None:
        if keys:
            columns: dict[str, list[object]] = {
                "job_id": [key.job_id for key in keys],
                "number": [key.number for key in keys],
            }
            self._db.run("delete_blobs", None, columns)

    def release_blobs(self, ids: Collection[UUID]) -> None:
        if ids:
            self._db.run("release_blobs", {"ids": list(ids)})

    def drop_blobs(self, ids: Collection[UUID]) -> None:
        if ids:
            self._db.run("drop_blobs", {"ids": list(ids)})
