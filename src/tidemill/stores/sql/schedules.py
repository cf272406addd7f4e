"""Definitions, schedules, fires and releases in the SQL store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.releases import Deploy, Deployment, ReleaseRecord
from tidemill.domain.schedules import (
    CLUSTER_KEY,
    ActiveJob,
    Advance,
    Definition,
    DefinitionVersion,
    Due,
    Fired,
    FireKey,
    ScheduleRow,
    Scope,
)
from tidemill.domain.states import JobState
from tidemill.stores.schedules import DefinitionStore, FireStore, ReleaseStore, ScheduleStore
from tidemill.stores.sql.base import SqlPart
from tidemill.stores.sql.job_rows import at_most, tenant_of
from tidemill.stores.sql.occurrences import write_sources
from tidemill.stores.sql.schedule_rows import (
    definition_takes,
    load_definition,
    load_schedule,
    load_version,
    schedule_columns,
    version_takes,
)


class SqlDefinitions(SqlPart, DefinitionStore):
    """put_definition, definitions, definition_versions, enable_definitions, drop_definitions."""

    def put_definition(
        self, definition: Definition, *, by: str | None = None, now: datetime | None = None
    ) -> Definition | None:
        with self._db.transaction():
            rows = self._db.run("put_definition", definition_takes(definition, by, now))
            if not rows:
                return None
            written = load_definition(rows[0])
            self._db.run("note_version", version_takes(written, by))
            return written

    def definitions(
        self,
        *,
        tenant: str,
        ids: Collection[UUID] | None = None,
        keys: Collection[str] | None = None,
        task: str | None = None,
        deleted: bool = False,
    ) -> list[Definition]:
        takes = {"tenant": tenant_of(tenant), "ids": _listed(ids), "keys": _listed(keys), "task": task}
        rows = self._db.run("definitions", takes, flags=() if deleted else ("living",))
        return [load_definition(row) for row in rows]

    def definition_versions(self, id: UUID, *, tenant: str) -> list[DefinitionVersion]:
        rows = self._db.run("definition_versions", {"id": id, "tenant": tenant_of(tenant)})
        return [load_version(row) for row in rows]

    def enable_definitions(
        self, ids: Collection[UUID], *, tenant: str, enabled: bool, now: datetime | None = None
    ) -> frozenset[UUID]:
        if not ids:
            return frozenset()
        takes = {"now": now, "tenant": tenant_of(tenant), "ids": list(ids), "enabled": enabled}
        return frozenset(row[0] for row in self._db.run("enable_definitions", takes))

    def drop_definitions(
        self, ids: Collection[UUID], *, tenant: str, now: datetime | None = None
    ) -> frozenset[UUID]:
        if not ids:
            return frozenset()
        with self._db.transaction():
            takes = {"now": now, "tenant": tenant_of(tenant), "ids": list(ids)}
            dropped = [row[0] for row in self._db.run("drop_definitions", takes)]
            if dropped:
                self._db.run("drop_schedules_of", {"ids": dropped})
            return frozenset(dropped)


class SqlSchedules(SqlPart, ScheduleStore, FireStore):
    """put_schedules … drop_schedules; due, advance; note_fires … purge_fires."""

    def put_schedules(
        self, schedules: Sequence[ScheduleRow], *, now: datetime | None = None
    ) -> frozenset[UUID]:
        if not schedules:
            return frozenset()
        with self._db.transaction():
            rows = self._db.run("put_schedules", {"now": now}, schedule_columns(schedules))
            lost = frozenset(row[0] for row in rows)
            write_sources(self._db, (schedule for schedule in schedules if schedule.id not in lost))
            return lost

    def schedules(
        self,
        *,
        tenant: str,
        ids: Collection[UUID] | None = None,
        keys: Collection[str] | None = None,
        definition_id: UUID | None = None,
        scope: Scope | None = None,
    ) -> list[ScheduleRow]:
        takes = {
            "tenant": tenant_of(tenant),
            "ids": _listed(ids),
            "keys": _listed(keys),
            "definition_id": definition_id,
            "scope": scope,
        }
        return [load_schedule(row) for row in self._db.run("schedules", takes)]

    def enable_schedules(
        self,
        ids: Collection[UUID],
        *,
        tenant: str,
        enabled: bool,
        note: str | None = None,
        now: datetime | None = None,
    ) -> frozenset[UUID]:
        if not ids:
            return frozenset()
        takes = {"now": now, "tenant": tenant_of(tenant), "ids": list(ids), "enabled": enabled, "note": note}
        return frozenset(row[0] for row in self._db.run("enable_schedules", takes))

    def drop_schedules(self, ids: Collection[UUID], *, tenant: str) -> frozenset[UUID]:
        if not ids:
            return frozenset()
        takes = {"tenant": tenant_of(tenant), "ids": list(ids)}
        return frozenset(row[0] for row in self._db.run("drop_schedules", takes))

    def due(self, limit: int, *, now: datetime | None = None) -> Due:
        rows = self._db.run("due", {"now": now, "limit": at_most(limit)})
        return Due([load_schedule(row[1:]) for row in rows if row[1] is not None], rows[0][0])

    def advance(self, advances: Sequence[Advance]) -> frozenset[UUID]:
        if not advances:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "id": [item.id for item in advances],
            "revision": [item.revision for item in advances],
            "expected_fire_at": [item.expected_fire_at for item in advances],
            "last_fire_at": [item.last_fire_at for item in advances],
            "next_fire_at": [item.next_fire_at for item in advances],
        }
        return frozenset(row[0] for row in self._db.run("advance", None, columns))

    def note_fires(self, fires: Sequence[Fired], *, now: datetime | None = None) -> frozenset[FireKey]:
        if not fires:
            return frozenset()
        columns: dict[str, list[Any]] = {
            "schedule_id": [fired.schedule_id for fired in fires],
            "fire_at": [fired.fire_at for fired in fires],
            "scope_key": [fired.scope_key for fired in fires],
            "tenant": [fired.tenant for fired in fires],
            "job_id": [fired.job_id for fired in fires],
            "reason": [fired.reason for fired in fires],
        }
        return frozenset(FireKey(*row) for row in self._db.run("note_fires", {"now": now}, columns))

    def fires(
        self,
        schedule_id: UUID,
        *,
        tenant: str,
        limit: int = 100,
        before: datetime | None = None,
    ) -> list[Fired]:
        takes = {
            "schedule_id": schedule_id,
            "tenant": tenant_of(tenant),
            "before": before,
            "limit": at_most(limit),
        }
        return [Fired(*row) for row in self._db.run("fires", takes)]

    def last_fires(self, ids: Collection[UUID], scope_key: str) -> dict[UUID, Fired]:
        if not ids:
            return {}
        takes = {"ids": list(ids), "scope_key": scope_key}
        rows = self._db.run("last_fires", takes, flags=() if scope_key == CLUSTER_KEY else ("node",))
        return {row[0]: Fired(*row) for row in rows}

    def active_jobs(self, ids: Collection[UUID], *, newest: int = 10) -> list[ActiveJob]:
        if not ids:
            return []
        rows = self._db.run("active_jobs", {"ids": list(ids), "newest": max(newest, 0)})
        return [
            ActiveJob(schedule_id, job_id, tenant, JobState(state))
            for schedule_id, job_id, tenant, state in rows
        ]

    def purge_fires(self, before: datetime, *, limit: int) -> int:
        return len(self._db.run("purge_fires", {"before": before, "limit": at_most(limit)}))


def _listed(names: Collection[Any] | None) -> list[Any] | None:
    return None if names is None else list(names)


class SqlReleases(SqlPart, ReleaseStore):
    """release_of, put_release, note_deploy, deploys."""

    def release_of(self, app: str) -> ReleaseRecord | None:
        rows = self._db.run("release_of", {"app": app})
        if not rows:
            return None
        revision, release, deployed_at, seen_at, forced_at = rows[0]
        return ReleaseRecord(app, Deployment(deployed_at, release), revision, seen_at, forced_at)

    def put_release(self, record: ReleaseRecord, *, now: datetime | None = None) -> bool:
        takes = {
            "now": now,
            "app": record.app,
            "revision": record.revision,
            "release": record.deployment.release,
            "deployed_at": record.deployment.deployed_at,
            "forced_at": record.forced_at,
        }
        return bool(self._db.run("put_release", takes))

    def note_deploy(self, app: str, release: str, *, now: datetime | None = None) -> bool:
        return bool(self._db.run("note_deploy", {"now": now, "app": app, "release": release}))

    def deploys(self, *, limit: int = 20) -> list[Deploy]:
        return [Deploy(*row) for row in self._db.run("deploys", {"limit": at_most(limit)})]
