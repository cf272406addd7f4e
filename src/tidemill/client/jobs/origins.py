"""Origins of jobs: their definition and schedule, by key or by id."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from tidemill.client.schedules.handle import named
from tidemill.domain.job import JobRow
from tidemill.domain.schedules import Definition
from tidemill.errors import BadFilter
from tidemill.stores.base import Store


class Origin(NamedTuple):
    """The keys of a job's definition and schedule; None if the job has none, or if it was removed."""

    job: JobRow
    definition_key: str | None
    schedule_key: str | None

    @property
    def definition(self) -> str | None:
        """The definition as a text: its key (or its id, if it was removed) and the version."""
        details = self.job.details
        if details.definition_id is None:
            return None
        version = "" if details.definition_version is None else f", version {details.definition_version}"
        return f"{self.definition_key or details.definition_id}{version}"

    @property
    def schedule(self) -> str | None:
        """The schedule as a text: its key, or its id if it was removed."""
        if self.job.details.schedule_id is None:
            return None
        return self.schedule_key or f"{self.job.details.schedule_id} (removed)"


def origin(store: Store, job: JobRow) -> Origin:
    """Look up the definition and the schedule of a job."""
    details = job.details
    definition = schedule = None
    if details.definition_id is not None:
        rows = store.definitions(tenant=job.tenant, ids=[details.definition_id], deleted=True)
        definition = rows[0].key if rows else None
    if details.schedule_id is not None:
        found = store.schedules(tenant=job.tenant, ids=[details.schedule_id])
        schedule = found[0].key if found else None
    return Origin(job, definition, schedule)


def definition_id_of(store: Store, given: Any, tenant: str) -> UUID | None:
    """Return the id of a definition, given the definition, its id or its key; a key also finds a deleted definition.

    An id is not checked. Raises ``BadFilter`` for an unknown key, and for a key that several tenants have.
    """
    if given is None:
        return None
    known = _id_of("definition", given)
    if isinstance(known, UUID):
        return known
    rows = store.definitions(tenant=tenant, keys=[known], deleted=True)
    living = [row for row in rows if row.deleted_at is None]
    chosen = living or sorted(rows, key=_deleted_at)[-1:]
    return _only("definition", known, [row.id for row in chosen])


def schedule_id_of(store: Store, given: Any, tenant: str) -> UUID | None:
    """Return the id of a schedule, given the schedule, its id or its key, with the same errors."""
    if given is None:
        return None
    known = _id_of("schedule", given)
    if isinstance(known, UUID):
        return known
    return _only("schedule", known, [row.id for row in store.schedules(tenant=tenant, keys=[known])])


def _id_of(kind: str, given: Any) -> UUID | str:
    found = getattr(given, "id", given)
    if isinstance(found, UUID):
        return found
    if not isinstance(found, str) or not found:
        raise BadFilter(f"{kind}: {given!r} names none; give its key or its id", field=kind)
    name = named(found)
    return UUID(found) if "ids" in name else found


def _only(kind: str, key: str, ids: list[UUID]) -> UUID:
    if not ids:
        raise BadFilter(f"there is no {kind} {key!r} here; give its key or its id", field=kind)
    if len(ids) > 1:
        raise BadFilter(f"{len(ids)} tenants have a {kind} {key!r}; give the tenant, or its id", field=kind)
    return ids[0]


def _deleted_at(row: Definition) -> float:
    return 0.0 if row.deleted_at is None else row.deleted_at.timestamp()
