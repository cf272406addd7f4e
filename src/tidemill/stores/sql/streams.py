"""Streams of jobs in the SQL store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tidemill.domain.filters import page_size
from tidemill.domain.streams import PAGE, START, StreamEntry, StreamPosition
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.job_rows import tenant_of
from tidemill.stores.streams import StreamStore


class SqlStreams(SqlPart, StreamStore):
    """write_streams, stream, stream_names."""

    def write_streams(self, entries: Sequence[StreamEntry]) -> frozenset[UUID]:
        if not entries:
            return frozenset()
        return frozenset(row[0] for row in self._db.run("write_streams", None, stream_columns(entries)))

    def stream(
        self, id: UUID, name: str, *, tenant: str, after: StreamPosition = START, limit: int = PAGE
    ) -> list[StreamEntry]:
        takes = {
            "id": id,
            "tenant": tenant_of(tenant),
            "name": name,
            "number": after.execution,
            "n": after.n,
            "limit": page_size(limit),
        }
        return [
            StreamEntry(id, number, None, name, n, data) for number, n, data in self._db.run("stream", takes)
        ]

    def stream_names(self, id: UUID, *, tenant: str) -> dict[str, int]:
        return dict(self._db.run("stream_names", {"id": id, "tenant": tenant_of(tenant)}))


def stream_columns(entries: Sequence[StreamEntry]) -> dict[str, list[Any]]:
    """The entries as columns of a statement."""
    return {
        "job_id": [entry.job_id for entry in entries],
        "number": [entry.number for entry in entries],
        "worker": [entry.worker for entry in entries],
        "name": [entry.name for entry in entries],
        "n": [entry.n for entry in entries],
        "data": [entry.data for entry in entries],
    }
