"""Conditions of ``app.jobs`` and their conversion to a filter."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tidemill.client.enqueue.options import id_of, read_reference
from tidemill.client.schedules.schedule import named
from tidemill.domain.durations import read_duration
from tidemill.domain.filters import JobFilter
from tidemill.domain.schedules import Definition
from tidemill.domain.states import JobState
from tidemill.errors import BadFilter
from tidemill.stores.base import Store

SCANNING = ("text", "args", "error", "worker", "took_over")
"""Conditions that no index serves: a page scans a bounded number of jobs for them."""

CONDITIONS = {
    "status", "task", "queue", "tenant", "correlation_id", "parent_id", "reference", "tag", "metadata",
    "created_after", "created_before", "ids", "text", "text_in_args", "definition", "definition_version",
    "schedule", "fire_at", "flow", "args", "error", "error_group", "worker", "took_over",
}  # fmt: skip


def job_filter(store: Store, where: Mapping[str, Any], *, tenant: str) -> JobFilter:
    """Return the filter for the conditions that a caller gave, or raise ``BadFilter``."""
    unknown = sorted(set(where) - CONDITIONS)
    if unknown:
        raise BadFilter(f"there is no condition {unknown[0]!r}; there are {', '.join(sorted(CONDITIONS))}")
    return JobFilter(
        tenant=tenant,
        states=frozenset(_state(name) for name in several(where.get("status"))),
        tasks=frozenset(getattr(task, "name", task) for task in several(where.get("task"))),
        queues=frozenset(several(where.get("queue"))),
        ids=frozenset(job_id for id in several(where.get("ids")) if (job_id := id_of(id)) is not None),
        correlation_id=where.get("correlation_id"),
        parent_id=id_of(where.get("parent_id")),
        definition_id=definition_id_of(store, where.get("definition"), tenant),
        definition_version=where.get("definition_version"),
        schedule_id=schedule_id_of(store, where.get("schedule"), tenant),
        fire_at=instant(where.get("fire_at")),
        flow_id=_flow_id(where.get("flow")),
        reference=None if where.get("reference") is None else read_reference(where["reference"]),
        tag=where.get("tag"),
        metadata={key: _value("metadata", value) for key, value in (where.get("metadata") or {}).items()},
        created_after=instant(where.get("created_after")),
        created_before=instant(where.get("created_before")),
        text=where.get("text"),
        text_in_args=where.get("text_in_args", True),
        args={key: _value("args", value) for key, value in (where.get("args") or {}).items()},
        error=where.get("error"),
        error_group=where.get("error_group"),
        workers=_worker_ids(store, where.get("worker")),
        took_over=_duration(where.get("took_over")),
    )


def definition_id_of(store: Store, given: Any, tenant: str) -> UUID | None:
    """Return the id of a definition, given the definition, its id or its key; a key also finds a deleted definition.

    An id is not checked. Raises ``BadFilter`` for an unknown key, and for a key that several tenants have.
    """
    if given is None:
        return None
    key = _id_of("definition", given)
    if isinstance(key, UUID):
        return key
    rows = store.definitions(tenant=tenant, keys=[key], deleted=True)
    living = [row for row in rows if row.deleted_at is None]
    chosen = living or sorted(rows, key=_deleted_at)[-1:]
    return _only("definition", key, [row.id for row in chosen])


def schedule_id_of(store: Store, given: Any, tenant: str) -> UUID | None:
    """Return the id of a schedule, given the schedule, its id or its key, with the same errors."""
    if given is None:
        return None
    key = _id_of("schedule", given)
    if isinstance(key, UUID):
        return key
    return _only("schedule", key, [row.id for row in store.schedules(tenant=tenant, keys=[key])])


def _id_of(kind: str, given: Any) -> UUID | str:
    value = getattr(given, "id", given)
    if isinstance(value, UUID):
        return value
    if not isinstance(value, str) or not value:
        raise BadFilter(f"{kind}: {given!r} names none; give its key or its id", field=kind)
    name = named(value)
    return UUID(value) if "ids" in name else value


def _only(kind: str, key: str, ids: list[UUID]) -> UUID:
    if not ids:
        raise BadFilter(f"there is no {kind} {key!r} here; give its key or its id", field=kind)
    if len(ids) > 1:
        raise BadFilter(f"{len(ids)} tenants have a {kind} {key!r}; give the tenant, or its id", field=kind)
    return ids[0]


def _deleted_at(row: Definition) -> float:
    return 0.0 if row.deleted_at is None else row.deleted_at.timestamp()


def _flow_id(given: Any) -> UUID | None:
    """Return the id of a flow or batch, given as an id, a text, or an object that has one."""
    if given is None:
        return None
    flow = getattr(given, "id", given)
    if (id := id_of(flow)) is None:
        raise BadFilter(f"flow is {given!r}; give the id of a flow or batch", field="flow")
    return id


def _worker_ids(store: Store, given: Any) -> frozenset[UUID]:
    """Return the ids of the workers with a name that the store still lists, or the given id."""
    if given is None:
        return frozenset()
    if isinstance(given, UUID):
        return frozenset({given})
    ids = {worker.id for worker in store.workers() if str(given) in (worker.name, str(worker.id))}
    try:
        return frozenset(ids or {UUID(str(given))})
    except ValueError:
        raise BadFilter(f"there is no worker {given!r}; give its name or its id", field="worker") from None


def _duration(given: Any) -> timedelta | None:
    return None if given is None else read_duration("took_over", given, error=BadFilter, field="took_over")


def _value(name: str, given: object) -> str:
    """Return a value in the form in which stores compare it.

    That is a text, or the JSON form of a number, a bool or None. Databases format lists and dictionaries differently,
    so a comparison with them would never match.
    """
    if given is not None and not isinstance(given, str | bool | int | float):
        raise BadFilter(
            f"{name}: {given!r} cannot be searched for; give a text, a number, a boolean or None", field=name
        )
    return given if isinstance(given, str) else json.dumps(given)


def several(given: Any) -> Iterable[Any]:
    """Return the values of a condition that takes one value or a collection."""
    if given is None:
        return ()
    return given if isinstance(given, list | tuple | set | frozenset) else (given,)


def _state(name: Any) -> JobState:
    try:
        return JobState(name)
    except ValueError:
        raise BadFilter(
            f"there is no status {name!r}; there are {', '.join(JobState)}", status=name
        ) from None


def instant(value: Any) -> datetime | None:
    """Return the value if it is an instant or None; otherwise raise ``BadFilter``."""
    if value is not None and not isinstance(value, datetime):
        raise BadFilter(f"{value!r} is not a datetime")
    return value
