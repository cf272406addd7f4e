"""Definitions, schedules, fires and releases in memory.

The store does not interpret rules: triggers, calendars and options stay the data they were written as.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.releases import Deploy, ReleaseRecord
from tidemill.domain.schedules import (
    ActiveJob,
    Advance,
    Definition,
    DefinitionVersion,
    Due,
    Fired,
    FireKey,
    ScheduleRow,
    Scope,
    is_runner_place,
)
from tidemill.domain.states import ENDED
from tidemill.stores.memory.copies import json_copy
from tidemill.stores.memory.core import MemoryPart, refuse_repeats
from tidemill.stores.memory.occurrences import drop_of_schedule
from tidemill.stores.memory.state import State
from tidemill.stores.schedules import DefinitionStore, FireStore, ReleaseStore, ScheduleStore


class MemoryDefinitions(MemoryPart, DefinitionStore):
    """Stored configurations of tasks."""

    def put_definition(
        self, definition: Definition, *, by: str | None = None, now: datetime | None = None
    ) -> Definition | None:
        with self._open() as state:
            moment = self._at(now)
            old = state.definitions.get(definition.id)
            if not _fits(state, definition, old):
                return None
            written = replace(
                _copied(definition),
                version=definition.version + 1,
                enabled=definition.enabled if old is None else old.enabled,
                created_at=moment if old is None else old.created_at,
                created_by=by if old is None else old.created_by,
                updated_at=moment,
                deleted_at=None,
            )
            state.definitions[written.id] = written
            state.versions.setdefault(written.id, []).append(DefinitionVersion(written, moment, by))
            return _copied(written)

    def definitions(
        self,
        *,
        tenant: str,
        ids: Collection[UUID] | None = None,
        keys: Collection[str] | None = None,
        task: str | None = None,
        deleted: bool = False,
    ) -> list[Definition]:
        with self._open() as state:
            found = [
                row
                for row in state.definitions.values()
                if tenant in (ALL_TENANTS, row.tenant)
                and (ids is None or row.id in ids)
                and (keys is None or row.key in keys)
                and (task is None or row.task == task)
                and (deleted or row.deleted_at is None)
            ]
            found.sort(key=_definition_order)
            return [_copied(row) for row in found]

    def definition_versions(self, id: UUID, *, tenant: str) -> list[DefinitionVersion]:
        with self._open() as state:
            row = state.definitions.get(id)
            if row is None or tenant not in (ALL_TENANTS, row.tenant):
                return []
            return [
                version._replace(definition=_copied(version.definition)) for version in state.versions[id]
            ]

    def enable_definitions(
        self, ids: Collection[UUID], *, tenant: str, enabled: bool, now: datetime | None = None
    ) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            changed = [row for row in _living(state, ids, tenant) if row.enabled != enabled]
            for row in changed:
                state.definitions[row.id] = replace(row, enabled=enabled, updated_at=moment)
            for schedule in _schedules_of(state, changed):
                state.schedules[schedule.id] = replace(
                    schedule,
                    revision=schedule.revision + 1,
                    updated_at=moment,
                    since_at=moment,
                    next_fire_at=moment if enabled else None,
                )
            return frozenset(row.id for row in changed)

    def drop_definitions(
        self, ids: Collection[UUID], *, tenant: str, now: datetime | None = None
    ) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            dropped = list(_living(state, ids, tenant))
            for row in dropped:
                state.definitions[row.id] = replace(row, updated_at=moment, deleted_at=moment)
            for schedule in _schedules_of(state, dropped):
                del state.schedules[schedule.id]
                drop_of_schedule(state, schedule.id)
            return frozenset(row.id for row in dropped)


class MemorySchedules(MemoryPart, ScheduleStore, FireStore):
    """Stored schedules."""

    def put_schedules(
        self, schedules: Sequence[ScheduleRow], *, now: datetime | None = None
    ) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            refuse_repeats((schedule.id for schedule in schedules), "schedule")
            holders = {(row.tenant, row.key): row.id for row in state.schedules.values()}
            lost, written = set(), []
            for schedule in map(_kept, schedules):
                old = state.schedules.get(schedule.id)
                name = schedule.tenant, schedule.key
                if not _follows(state, schedule, old) or holders.get(name, schedule.id) != schedule.id:
                    lost.add(schedule.id)
                    continue
                holders[name] = schedule.id  # the first one in a batch to name a key gets it
                written.append(
                    replace(
                        schedule,
                        revision=schedule.revision + 1,
                        created_at=moment if old is None else old.created_at,
                        updated_at=moment,
                        since_at=moment,
                        last_fire_at=None if old is None else old.last_fire_at,
                    )
                )
            state.schedules.update((schedule.id, schedule) for schedule in written)
            return frozenset(lost)

    def schedules(
        self,
        *,
        tenant: str,
        ids: Collection[UUID] | None = None,
        keys: Collection[str] | None = None,
        definition_id: UUID | None = None,
        scope: Scope | None = None,
    ) -> list[ScheduleRow]:
        with self._open() as state:
            found = [
                row
                for row in state.schedules.values()
                if tenant in (ALL_TENANTS, row.tenant)
                and (ids is None or row.id in ids)
                and (keys is None or row.key in keys)
                and (definition_id is None or row.definition_id == definition_id)
                and (scope is None or row.scope == scope)
            ]
            return [_kept(row) for row in sorted(found, key=lambda row: (row.tenant, row.key))]

    def enable_schedules(
        self,
        ids: Collection[UUID],
        *,
        tenant: str,
        enabled: bool,
        note: str | None = None,
        now: datetime | None = None,
    ) -> frozenset[UUID]:
        with self._open() as state:
            moment = self._at(now)
            changed = [row for row in _found(state, ids, tenant) if row.enabled != enabled]
            for row in changed:
                after = replace(row, enabled=enabled, note=note, revision=row.revision + 1, updated_at=moment)
                if enabled:
                    after = replace(after, since_at=moment, next_fire_at=moment)
                state.schedules[row.id] = after
            return frozenset(row.id for row in changed)

    def drop_schedules(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        with self._open() as state:
            dropped = [row.id for row in _found(state, ids, tenant)]
            for id in dropped:
                del state.schedules[id]
                drop_of_schedule(state, id)
            return frozenset(dropped)

    def due(self, limit: int, *, now: datetime | None = None) -> Due:
        with self._open() as state:
            moment = self._at(now)
            timed = [
                (row.next_fire_at, row.id)
                for row in state.schedules.values()
                if row.scope == Scope.CLUSTER and row.next_fire_at is not None and _fires(state, row)
            ]
            timed.sort()
            first = [id for next_fire_at, id in timed[: max(limit, 0)] if next_fire_at <= moment]
            rest = timed[len(first) :]
            return Due([_kept(state.schedules[id]) for id in first], rest[0][0] if rest else None)

    def advance(self, advances: Sequence[Advance]) -> frozenset[UUID]:
        with self._open() as state:
            refuse_repeats((item.id for item in advances), "schedule")
            lost = set()
            for item in advances:
                row = state.schedules.get(item.id)
                if (
                    row is None
                    or row.revision != item.revision
                    or row.last_fire_at != item.expected_fire_at
                    or not _fires(state, row)
                ):
                    lost.add(item.id)
                else:
                    state.schedules[row.id] = replace(
                        row, last_fire_at=item.last_fire_at, next_fire_at=item.next_fire_at
                    )
            return frozenset(lost)

    def note_fires(self, fires: Sequence[Fired], *, now: datetime | None = None) -> frozenset[FireKey]:
        with self._open() as state:
            moment = self._at(now)
            new = set()
            for fired in fires:
                rows = state.fires.setdefault(fired.schedule_id, {})
                if fired.key not in rows:
                    rows[fired.key] = fired._replace(created_at=moment)
                    new.add(fired.key)
            return frozenset(new)

    def fires(
        self,
        schedule_id: UUID,
        *,
        tenant: str,
        limit: int = 100,
        before: datetime | None = None,
    ) -> list[Fired]:
        with self._open() as state:
            found = [
                row
                for row in state.fires.get(schedule_id, {}).values()
                if tenant in (ALL_TENANTS, row.tenant) and (before is None or row.fire_at < before)
            ]
            found.sort(key=lambda row: row.scope_key)
            found.sort(key=lambda row: row.fire_at, reverse=True)
            return found[: max(limit, 0)]

    def last_fires(self, ids: Collection[UUID], scope_key: str) -> dict[UUID, Fired]:
        with self._open() as state:
            found = {}
            for id in ids:
                rows = [row for row in state.fires.get(id, {}).values() if row.scope_key == scope_key]
                if rows:
                    found[id] = max(rows, key=lambda row: row.fire_at)
            return found

    def active_jobs(self, ids: Collection[UUID], *, newest: int = 10) -> list[ActiveJob]:
        with self._open() as state:
            return [
                ActiveJob(id, job.id, job.tenant, job.state)
                for id in sorted(set(ids), key=lambda id: id.int)
                for job_id in _newest_jobs(state, id, max(newest, 0))
                if (job := state.jobs.get(job_id)) is not None and job.state not in ENDED
            ]

    def purge_fires(self, before: datetime, *, limit: int) -> int:
        with self._open() as state:
            old = [
                key
                for id, rows in state.fires.items()
                for key in _purgeable(rows, standing=id in state.schedules)
                if key.fire_at < before
            ]
            old.sort(key=lambda key: (key.fire_at, key.schedule_id.int, key.scope_key))
            gone = old[: max(limit, 0)]
            for key in gone:
                del state.fires[key.schedule_id][key]
                if not state.fires[key.schedule_id]:
                    del state.fires[key.schedule_id]
            return len(gone)


def _fits(state: State, definition: Definition, old: Definition | None) -> bool:
    """Whether a definition is new or follows the stored version, and its key is free."""
    if old is None:
        right = definition.version == 0
    else:
        right = (old.tenant, old.version, old.deleted_at) == (definition.tenant, definition.version, None)
    return right and not any(
        row.key == definition.key
        and row.tenant == definition.tenant
        and row.deleted_at is None
        and row.id != definition.id
        for row in state.definitions.values()
    )


def _follows(state: State, schedule: ScheduleRow, old: ScheduleRow | None) -> bool:
    """Whether a schedule is new or follows the stored revision, and its definition is not deleted."""
    if old is None:
        right = schedule.revision == 0
    else:
        right = (old.tenant, old.revision) == (schedule.tenant, schedule.revision)
    if not right or schedule.definition_id is None:
        return right
    return any(_living(state, [schedule.definition_id], schedule.tenant))


def _fires(state: State, schedule: ScheduleRow) -> bool:
    """Whether a schedule may advance: the schedule and its definition are enabled."""
    if not schedule.enabled or schedule.definition_id is None:
        return schedule.enabled
    definition = state.definitions[schedule.definition_id]
    return definition.enabled and definition.deleted_at is None


def _living(state: State, ids: Collection[UUID], tenant: str) -> Iterator[Definition]:
    for id in set(ids):
        row = state.definitions.get(id)
        if row is not None and row.deleted_at is None and tenant in (ALL_TENANTS, row.tenant):
            yield row


def _found(state: State, ids: Collection[UUID], tenant: str) -> list[ScheduleRow]:
    rows = [row for id in set(ids) if (row := state.schedules.get(id)) is not None]
    return [row for row in rows if tenant in (ALL_TENANTS, row.tenant)]


def _schedules_of(state: State, definitions: Iterable[Definition]) -> list[ScheduleRow]:
    ids = {definition.id for definition in definitions}
    return [row for row in state.schedules.values() if row.definition_id in ids]


def _newest_jobs(state: State, id: UUID, newest: int) -> list[UUID]:
    """The jobs of a schedule's newest fires, oldest first."""
    fired = sorted(
        (key.fire_at, key.scope_key, row.job_id) for key, row in state.fires.get(id, {}).items() if row.job_id
    )
    return [job_id for _, _, job_id in fired[-newest:]] if newest else []


def _purgeable(rows: dict[FireKey, Fired], *, standing: bool) -> Iterator[FireKey]:
    """The fires of a schedule except the newest of each node and of the cluster; all of them if the schedule was deleted."""
    newest: dict[str, datetime] = {}
    for key in rows:
        newest[key.scope_key] = max(key.fire_at, newest.get(key.scope_key, key.fire_at))
    return (
        key
        for key in rows
        if not standing or is_runner_place(key.scope_key) or key.fire_at < newest[key.scope_key]
    )


def _definition_order(row: Definition) -> tuple[str, str, bool, float, int]:
    """Order by tenant and key, existing definitions before deleted ones, the latest deletion first."""
    gone = row.deleted_at
    return row.tenant, row.key, gone is not None, 0.0 if gone is None else -gone.timestamp(), row.id.int


def _copied(definition: Definition) -> Definition:
    return replace(
        definition, settings=json_copy(definition.settings), notifications=json_copy(definition.notifications)
    )


def _kept(schedule: ScheduleRow) -> ScheduleRow:
    return replace(
        schedule,
        trigger=json_copy(schedule.trigger),
        calendar=json_copy(schedule.calendar),
        exclude=json_copy(schedule.exclude),
        options=json_copy(schedule.options),
        misfire=json_copy(schedule.misfire),
    )


class MemoryReleases(MemoryPart, ReleaseStore):
    """release_of, put_release, note_deploy, deploys."""

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

    def note_deploy(self, app: str, release: str, *, now: datetime | None = None) -> bool:
        with self._open() as state:
            if (app, release) in state.deploys:
                return False
            state.deploys[app, release] = Deploy(app, release, self._at(now))
            return True

    def deploys(self, *, limit: int = 20) -> list[Deploy]:
        with self._open() as state:
            rows = sorted(state.deploys.values(), key=lambda row: (row.app, row.release))
            rows.sort(key=lambda row: row.deployed_at, reverse=True)
            return rows[: max(limit, 0)]
