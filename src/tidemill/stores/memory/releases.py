"""Release records in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from tidemill.domain.releases import ReleaseRecord
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.releases import ReleaseStore


class MemoryReleases(MemoryPart, ReleaseStore):
    """release_of, put_release."""

    def release_of(self, app: str) -> ReleaseRecord | None:
        with self._open() as state:
            return state.releases.get(app)

    def put_release(self, record: ReleaseRecord, *, now: datetime | None = None) -> bool:
        with self._open() as state:
            stored = state.releases.get(record.app)
            if record.revision != (0 if stored is None else stored.revision):
                return False
            state.releases[record.app] = replace(record, revision=record.revision + 1, seen_at=self._at(now))
            return True
