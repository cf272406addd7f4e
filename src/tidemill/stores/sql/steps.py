"""Records of steps in the SQL store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.graph import StepRecord
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Driver
from tidemill.stores.steps import StepStore


class SqlSteps(SqlPart, StepStore):
    """record_steps."""

    def record_steps(self, entries: Sequence[StepRecord], *, now: datetime | None = None) -> frozenset[UUID]:
        return write_records(self._db, entries, now)


def write_records(db: Driver, entries: Sequence[StepRecord], now: datetime | None) -> frozenset[UUID]:
    """Insert records of held jobs; for ``record_steps``, and for finishes in whose transaction they are written."""
    if not entries:
        return frozenset()
    job_ids, numbers, workers, names, values = zip(*entries, strict=True)
    columns: dict[str, list[Any]] = {
        "job_id": list(job_ids),
        "number": list(numbers),
        "worker": list(workers),
        "name": list(names),
        "value": list(values),
    }
    return frozenset(row[0] for row in db.run("record_steps", {"now": now}, columns))
