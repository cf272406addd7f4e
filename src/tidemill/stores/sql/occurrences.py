"""Occurrences in the SQL store: ends of jobs and events that schedules react to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.join_counts import Ended
from tidemill.domain.reactions import Occurrence, OccurrenceKey
from tidemill.domain.schedules import ScheduleRow
from tidemill.domain.triggers.reactive import sources_of
from tidemill.stores.occurrences import OccurrenceStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.driver import Driver
from tidemill.stores.sql.job_rows import at_most

TOPIC = "occurrences"


class SqlOccurrences(SqlPart, OccurrenceStore):
    """followed, reacting, occurrences, drop_occurrences."""

    def followed(self, definition_ids: Collection[UUID]) -> frozenset[UUID]:
        if not definition_ids:
            return frozenset()
        rows = self._db.run("followed", {"ids": sorted(set(definition_ids))})
        return frozenset(id for (id,) in rows)

    def reacting(self, *, after: UUID | None = None, limit: int = 500) -> list[UUID]:
        return [id for (id,) in self._db.run("reacting", {"after": after, "limit": at_most(limit)})]

    def occurrences(self, schedule_ids: Collection[UUID], *, limit: int = 1_000) -> list[Occurrence]:
        if not schedule_ids:
            return []
        takes = {"ids": sorted(set(schedule_ids)), "limit": at_most(limit)}
        return [Occurrence(*row) for row in self._db.run("occurrences", takes)]

    def drop_occurrences(self, keys: Sequence[OccurrenceKey]) -> int:
        if not keys:
            return 0
        columns: dict[str, list[Any]] = {
            name: [getattr(key, name) for key in keys] for name in OccurrenceKey._fields
        }
        return len(self._db.run("drop_occurrences", None, columns))


def write_sources(db: Driver, schedules: Iterable[ScheduleRow]) -> None:
    """Write what the triggers of these schedules react to. A schedule with a time that never had another rule costs nothing."""
    changed = [schedule for schedule in schedules if schedule.revision or sources_of(schedule.trigger)]
    if not changed:
        return
    db.run("drop_sources", {"ids": [schedule.id for schedule in changed]})
    rows = [
        (schedule.id, schedule.tenant, *source)
        for schedule in changed
        for source in sources_of(schedule.trigger)
    ]
    if rows:
        names = ("schedule_id", "tenant", "kind", "name")
        columns: dict[str, list[Any]] = {
            name: list(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)
        }
        db.run("put_sources", None, columns)


def note_ends(db: Driver, ends: Sequence[Ended], now: datetime | None) -> bool:
    """Write the ends of jobs for the schedules that run after their definitions. Returns whether there are such schedules."""
    back = [end.id for end in ends if end.back]
    if back:
        db.run("take_back_occurrences", {"ids": back})
    forward = [end for end in ends if not end.back]
    if not forward:
        return False
    columns: dict[str, list[Any]] = {
        "id": [end.id for end in forward],
        "outcome": [end.outcome for end in forward],
    }
    return bool(db.run("note_ends", {"now": now}, columns))


def note_events(db: Driver, ids: Collection[UUID]) -> bool:
    """Write new events for the schedules that fire on them. Returns whether there are such schedules."""
    return bool(db.run("note_events", {"ids": sorted(ids)})) if ids else False
