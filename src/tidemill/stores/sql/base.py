"""The base of all parts of the SQL store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.job import NO_DETAILS, Details, JobRow
from tidemill.stores.sql.driver import Driver, Row
from tidemill.stores.sql.job_rows import load_details, load_job

_DETAILED = 15  # column of the view ``jobs``


class SqlPart:
    """A part of the SQL store."""

    _db: Driver

    def _time(self, now: datetime | None) -> datetime:
        """The given instant, or the store's time."""
        if now is not None:
            return now
        at: datetime = self._db.run("clock")[0][0]
        return at

    def _details(self, ids: Sequence[UUID]) -> dict[UUID, Details]:
        if not ids:
            return {}
        return {row[0]: load_details(row[1:]) for row in self._db.run("details", {"ids": ids})}

    def _jobs(self, rows: Sequence[Row]) -> list[JobRow]:
        details = self._details([row[0] for row in rows if row[_DETAILED]])
        return [load_job(row, details.get(row[0], NO_DETAILS)) for row in rows]
