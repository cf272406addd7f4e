"""Occurrences in memory: ends of jobs and events that schedules react to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from uuid import UUID

from tidemill.domain.join_counts import Ended
from tidemill.domain.reactions import Occurrence, OccurrenceKey
from tidemill.domain.schedules import ScheduleRow
from tidemill.domain.signals import EmittedEvent
from tidemill.domain.triggers.reactive import SourceKind, TriggerSource, sources_of
from tidemill.stores.memory.core import MemoryPart
from tidemill.stores.memory.state import State
from tidemill.stores.occurrences import OccurrenceStore

TOPIC = "occurrences"


class MemoryOccurrences(MemoryPart, OccurrenceStore):
    """followed, reacting, occurrences, drop_occurrences."""

    def followed(self, definition_ids: Collection[UUID]) -> frozenset[UUID]:
        with self._open() as state:
            rows = (state.definitions.get(id) for id in definition_ids)
            return frozenset(
                row.id
                for row in rows
                if row is not None
                and _followers(state, row.tenant, TriggerSource(SourceKind.DEFINITION, row.key))
            )

    def reacting(self, *, after: UUID | None = None, limit: int = 500) -> list[UUID]:
        with self._open() as state:
            found = {id for id, _ in state.occurrences if after is None or id.bytes > after.bytes}
            live = [row for id in found if (row := state.schedules.get(id)) is not None and row.enabled]
            ids = [row.id for row in live if sources_of(row.trigger)]
            return sorted(ids, key=lambda id: id.bytes)[: max(limit, 0)]

    def occurrences(self, schedule_ids: Collection[UUID], *, limit: int = 1_000) -> list[Occurrence]:
        with self._open() as state:
            rows = [one for one in state.occurrences.values() if one.schedule_id in schedule_ids]
            rows.sort(key=lambda one: (one.schedule_id.bytes, one.occurred_at, one.id.bytes))
            return rows[: max(limit, 0)]

    def drop_occurrences(self, keys: Sequence[OccurrenceKey]) -> int:
        with self._open() as state:
            dropped = 0
            for key in keys:
                one = state.occurrences.get((key.schedule_id, key.id))
                if one is not None and one.key == key:
                    del state.occurrences[key.schedule_id, key.id]
                    dropped += 1
            return dropped


def note_ends(state: State, ends: Iterable[Ended], now: datetime) -> bool:
    """Write the ends of jobs for the schedules that run after their definitions. Returns whether there are such schedules."""
    noted = False
    for end in ends:
        if end.back:
            for key in [key for key in state.occurrences if key[1] == end.id]:
                del state.occurrences[key]
            continue
        job = state.jobs.get(end.id)
        definition = None if job is None else state.definitions.get(job.details.definition_id or job.id)
        if definition is None:
            continue
        source = TriggerSource(SourceKind.DEFINITION, definition.key)
        for schedule in _reacting(state, definition.tenant, source):
            one = Occurrence(schedule.id, end.id, definition.key, now, str(end.outcome))
            state.occurrences[schedule.id, end.id] = one
            noted = True
    return noted


def note_events(state: State, events: Iterable[EmittedEvent]) -> bool:
    """Write new events for the schedules that fire on them. Returns whether there are such schedules."""
    noted = False
    for event in events:
        assert event.created_at is not None
        for schedule in _reacting(state, event.tenant, TriggerSource(SourceKind.EVENT, event.name)):
            one = Occurrence(
                schedule.id, event.id, event.name, event.created_at, "", event.match, event.payload
            )
            state.occurrences.setdefault((schedule.id, event.id), one)
            noted = True
    return noted


def drop_of_schedule(state: State, id: UUID) -> None:
    """Delete the occurrences of a schedule that is deleted."""
    for key in [key for key in state.occurrences if key[0] == id]:
        del state.occurrences[key]


def _followers(state: State, tenant: str, source: TriggerSource) -> list[ScheduleRow]:
    return [
        row for row in state.schedules.values() if row.tenant == tenant and source in sources_of(row.trigger)
    ]


def _reacting(state: State, tenant: str, source: TriggerSource) -> list[ScheduleRow]:
    """The schedules of this source that are enabled, and whose definition is."""
    rows = [row for row in _followers(state, tenant, source) if row.enabled]
    definitions = {row.id: state.definitions.get(row.definition_id or row.id) for row in rows}
    return [
        row
        for row in rows
        if (owner := definitions[row.id]) is None or (owner.enabled and owner.deleted_at is None)
    ]
