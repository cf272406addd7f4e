"""Builders of the tests of definitions, schedules and fires."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.schedules import Advance, Definition, Fired, FireKey, ScheduleRow
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import T0, at

HOURLY: Final = {"kind": "every", "seconds": 3600, "names": ["a", "ü"]}


def a_definition(key: str = "report", **fields: Any) -> Definition:
    """Return a new definition."""
    plain: dict[str, Any] = {"id": new_id(), "key": key, "task": "work"}
    return Definition(**(plain | fields))


def define(store: Store, key: str = "report", *, now: datetime = T0, **fields: Any) -> Definition:
    """Write a new definition, which must succeed; return it as stored."""
    stored = store.put_definition(a_definition(key, **fields), by="ann", now=now)
    assert stored is not None
    return stored


def definition_of(store: Store, id: UUID) -> Definition:
    """Return the definition of this id, deleted or not."""
    (definition,) = store.definitions(tenant=ALL_TENANTS, ids=[id], deleted=True)
    return definition


def a_schedule(key: str = "hourly", **fields: Any) -> ScheduleRow:
    """Return a new schedule, due at ``T0`` by default."""
    plain: dict[str, Any] = {
        "id": new_id(),
        "key": key,
        "task": "work",
        "trigger": HOURLY,
        "next_fire_at": T0,
    }
    return ScheduleRow(**(plain | fields))


def plan(store: Store, *schedules: ScheduleRow, now: datetime = T0) -> list[ScheduleRow]:
    """Write schedules, which must all succeed; return them as stored."""
    assert store.put_schedules(schedules, now=now) == frozenset()
    return [schedule_of(store, schedule.id) for schedule in schedules]


def plan_one(store: Store, key: str = "hourly", *, now: datetime = T0, **fields: Any) -> ScheduleRow:
    """Write one new schedule; return it as stored."""
    return plan(store, a_schedule(key, **fields), now=now)[0]


def schedule_of(store: Store, id: UUID) -> ScheduleRow:
    """Return the schedule of this id."""
    (schedule,) = store.schedules(tenant=ALL_TENANTS, ids=[id])
    return schedule


def step_of(schedule: ScheduleRow, *, last: datetime | None = T0, then: datetime | None = None) -> Advance:
    """Return the advance of a schedule from the state in which it was read."""
    return Advance(schedule.id, schedule.revision, schedule.last_fire_at, last, then or at(3600))


def a_fire(schedule: ScheduleRow | UUID, fire_at: datetime = T0, scope_key: str = "", **fields: Any) -> Fired:
    """Return a fire, skipped unless a job is given."""
    id = schedule if isinstance(schedule, UUID) else schedule.id
    return Fired(id, fire_at, scope_key, **fields)


def key_of(fire: Fired) -> FireKey:
    """Return the key that a store answers with."""
    return FireKey(fire.schedule_id, fire.fire_at, fire.scope_key)
