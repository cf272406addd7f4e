"""Samples of the depth of queues in the SQL store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from tidemill.domain.depths import (
    LOOK_BACK,
    DepthSample,
    DepthSeries,
    DepthStep,
    depth_series,
    sample_minute,
    sampled_depths,
)
from tidemill.domain.rollups import LENGTHS, Compaction
from tidemill.domain.stats import steps_of
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.job_rows import at_most
from tidemill.stores.stats import DepthStore

_MICROSECOND = timedelta(microseconds=1)


class SqlDepths(SqlPart, DepthStore):
    """measure_depths, put_depths, depth_series, compact_depths, drop_depths."""

    def measure_depths(self, *, now: datetime | None = None) -> list[DepthSample]:
        moment = self._time(now)
        if self._db.run("sampled", {"at": sample_minute(moment)})[0][0]:
            return []
        depths = [tuple(row) for row in self._db.run("depths", {"now": moment, "tenant": None})]
        later = dict(map(tuple, self._db.run("later", {"now": moment})))
        return sampled_depths(moment, depths, later)

    def put_depths(self, samples: Sequence[DepthSample], *, now: datetime | None = None) -> int:
        at = sample_minute(self._time(now))
        takes = {
            "at": at,
            "since": at - LOOK_BACK,
            "queues": [sample.queue for sample in samples],
            "pending": [sample.pending for sample in samples],
            "scheduled": [sample.scheduled for sample in samples],
            "oldest": [sample.oldest // _MICROSECOND for sample in samples],
        }
        return _number(self._db.run("put_depths", takes))

    def depth_series(
        self,
        window: timedelta,
        step: timedelta,
        *,
        queue: str | None = None,
        limit: int = 200,
        now: datetime | None = None,
    ) -> DepthSeries:
        steps, length = steps_of(self._time(now), window, step)
        takes = {
            "since": steps[0],
            "until": steps[-1] + length,
            "step": length,
            "queue": queue,
            "limit": at_most(limit),
        }
        rows = [
            (name, at, DepthStep(pending, scheduled, oldest * _MICROSECOND))
            for name, at, pending, scheduled, oldest in self._db.run("depth_series", takes)
        ]
        return depth_series(steps, length, rows, limit)

    def compact_depths(self, compaction: Compaction) -> int:
        takes = {
            "unit": compaction.unit,
            "into": compaction.into,
            "step": LENGTHS[compaction.into],
            "before": compaction.before,
        }
        return _number(self._db.run("compact_depths", takes))

    def drop_depths(self, before: datetime) -> int:
        return _number(self._db.run("drop_depths", {"before": before}))


def _number(rows: list[Row]) -> int:
    number: int = rows[0][0]
    return number
