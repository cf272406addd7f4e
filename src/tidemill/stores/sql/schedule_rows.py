"""Conversion between rows and values of definitions, schedules and fires."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from tidemill.domain.schedules import Definition, DefinitionVersion, ScheduleRow, Scope, Source
from tidemill.stores.sql.driver import Row
from tidemill.stores.sql.job_rows import dump, dump_mapping, load_mapping


def definition_takes(definition: Definition, by: str | None, now: datetime | None) -> dict[str, Any]:
    """A definition as the parameters of ``put_definition``."""
    return {
        "now": now,
        "id": definition.id,
        "tenant": definition.tenant,
        "key": definition.key,
        "name": definition.name,
        "task": definition.task,
        "version": definition.version,
        "args": definition.args,
        "settings": dump_mapping(definition.settings),
        "notifications": dump_mapping(definition.notifications),
        "owner": definition.owner,
        "enabled": definition.enabled,
        "by": by,
    }


def load_definition(row: Row) -> Definition:
    """A definition from a row of ``definitions``."""
    (id_, tenant, key, name, task, version, args, settings, notifications, owner, enabled, created_at, created_by, updated_at,
     deleted_at) = row  # fmt: skip
    return Definition(
        id=id_,
        key=key,
        task=task,
        tenant=tenant,
        name=name,
        version=version,
        args=args,
        settings=load_mapping(settings) or {},
        notifications=load_mapping(notifications) or {},
        owner=owner,
        enabled=enabled,
        created_at=created_at,
        created_by=created_by,
        updated_at=updated_at,
        deleted_at=deleted_at,
    )


def version_takes(definition: Definition, by: str | None) -> dict[str, Any]:
    """A definition that was just written, as the parameters of ``note_version``."""
    body = {
        "key": definition.key,
        "task": definition.task,
        "name": definition.name,
        "args": definition.args,
        "settings": dict(definition.settings),
        "notifications": dict(definition.notifications),
        "owner": definition.owner,
        "enabled": definition.enabled,
    }
    return {"id": definition.id, "body": dump(body), "by": by}


def load_version(row: Row) -> DefinitionVersion:
    """A version from a row of ``definition_versions``."""
    id_, tenant, first_at, first_by, version, body, created_at, created_by = row
    definition = Definition(
        id=id_,
        tenant=tenant,
        version=version,
        created_at=first_at,
        created_by=first_by,
        updated_at=created_at,
        **json.loads(body),
    )
    return DefinitionVersion(definition, created_at, created_by)


def schedule_columns(schedules: Sequence[ScheduleRow]) -> dict[str, list[Any]]:
    """Schedules as the columns of ``put_schedules``."""
    return {
        "id": [item.id for item in schedules],
        "tenant": [item.tenant for item in schedules],
        "key": [item.key for item in schedules],
        "definition_id": [item.definition_id for item in schedules],
        "task": [item.task for item in schedules],
        "trigger": [dump_mapping(item.trigger) for item in schedules],
        "timezone": [item.timezone for item in schedules],
        "calendar": [dump_mapping(item.calendar) for item in schedules],
        "exclude": [dump_mapping(item.exclude) for item in schedules],
        "args": [item.args for item in schedules],
        "options": [dump_mapping(item.options) for item in schedules],
        "misfire": [_misfire(item.misfire) for item in schedules],
        "overlap": [item.overlap for item in schedules],
        "scope": [item.scope for item in schedules],
        "source": [item.source for item in schedules],
        "enabled": [item.enabled for item in schedules],
        "note": [item.note for item in schedules],
        "revision": [item.revision for item in schedules],
        "next_fire_at": [item.next_fire_at for item in schedules],
    }


def load_schedule(row: Row) -> ScheduleRow:
    """A schedule from a row of ``schedules``, or of ``due`` less its leading instant."""
    (id_, tenant, key, definition_id, task, trigger, timezone, calendar, exclude, args, options, misfire, overlap, scope, source,
     enabled, note, revision, created_at, updated_at, since_at, last_fire_at, next_fire_at) = row  # fmt: skip
    return ScheduleRow(
        id=id_,
        key=key,
        task=task,
        trigger=load_mapping(trigger),
        tenant=tenant,
        definition_id=definition_id,
        timezone=timezone,
        calendar=load_mapping(calendar),
        exclude=load_mapping(exclude),
        args=args,
        options=load_mapping(options) or {},
        misfire=load_mapping(misfire),
        overlap=overlap,
        scope=Scope(scope),
        source=Source(source),
        enabled=enabled,
        note=note,
        revision=revision,
        created_at=created_at,
        updated_at=updated_at,
        since_at=since_at,
        last_fire_at=last_fire_at,
        next_fire_at=next_fire_at,
    )


def _misfire(rule: str | Mapping[str, object]) -> str:
    return dump(rule if isinstance(rule, str) else dict(rule))
