"""Streams of jobs in the memory store."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tidemill.domain.filters import page_size
from tidemill.domain.streams import PAGE, START, StreamEntry, StreamPosition
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.streams import StreamStore


class MemoryStreams(MemoryPart, StreamStore):
    """Items by job, name and position."""

    def write_streams(self, entries: Sequence[StreamEntry]) -> frozenset[UUID]:
        with self._open() as state:
            lost = set()
            for entry in entries:
                if state.find_held(entry.job_id, entry.number, entry.worker) is None:
                    lost.add(entry.job_id)
                else:
                    items = state.streams.setdefault(entry.job_id, {})
                    items.setdefault((entry.name, entry.position), entry._replace(worker=None))
            return frozenset(lost)

    def stream(
        self, id: UUID, name: str, *, tenant: str, after: StreamPosition = START, limit: int = PAGE
    ) -> list[StreamEntry]:
        size = page_size(limit)
        with self._open() as state:
            if state.find(id, tenant) is None:
                return []
            entries = [
                entry
                for (other, position), entry in state.streams.get(id, {}).items()
                if other == name and position > after
            ]
            return sorted(entries, key=lambda entry: entry.position)[:size]

    def stream_names(self, id: UUID, *, tenant: str) -> dict[str, int]:
        with self._open() as state:
            if state.find(id, tenant) is None:
                return {}
            names = sorted(name for name, _ in state.streams.get(id, {}))
            return {name: names.count(name) for name in dict.fromkeys(names)}
