"""Finding jobs by what people type: short ids, keys of definitions and schedules."""

from __future__ import annotations

from itertools import takewhile
from typing import Any, NamedTuple
from uuid import UUID

from tidemill.client.schedules.handle import named
from tidemill.domain.filters import LOOK, JobFilter, Sort, encode_cursor
from tidemill.domain.job import JobRow
from tidemill.domain.schedules import Definition
from tidemill.domain.states import ENDED, JobState
from tidemill.errors import BadFilter, BadSettings, JobNotFound
from tidemill.stores.base import Store

SHOWN = 12
"""Digits of the short form: the last ones, because ids created together share their first digits."""

LEAST = 6
LEAST_SUFFIX = 8
"""Minimum digits of a suffix in a store with too many jobs to search all of them."""

CANDIDATES = 10
ACTIVE = frozenset(JobState) - ENDED


def short(id: UUID) -> str:
    """Return the short form of an id.

    >>> short(UUID("01890a5d-ac96-774b-bcce-b302099a8057"))
    'b302099a8057'
    """
    return id.hex[-SHOWN:]


def resolve(store: Store, text: str, *, tenant: str) -> UUID:
    """Return the id of the only job whose id equals, starts with or ends with these digits.

    A prefix is a range of the primary key. A suffix is searched among the newest ``LOOK`` jobs, and among the newest
    ``LOOK`` that have not ended; older jobs need a prefix.
    """
    digits = text.strip().lower().replace("-", "")
    if not digits or digits.strip("0123456789abcdef") or len(digits) > 32:
        raise BadSettings(f"{text!r} is not a job id; give hexadecimal digits, such as 01a1e672", id=text)
    if len(digits) == 32:
        return UUID(digits)
    if len(digits) < LEAST:
        raise BadSettings(f"{text!r} is too short for a job id; give at least {LEAST} characters", id=text)
    found = {job.id: job for job in _with_prefix(store, digits, tenant)}
    prefixed = len(found)
    ending, whole = _with_suffix(store, digits, tenant)
    found |= {job.id: job for job in ending}
    if not found:
        raise JobNotFound(_nothing(text, whole=whole), id=text)
    if len(found) > 1:
        raise BadSettings(_several(text, list(found.values())), id=text)
    if not prefixed and not whole and len(digits) < LEAST_SUFFIX:
        raise BadSettings(
            f"{text!r} may be the end of several ids, as the store has more than {LOOK:,} jobs; "
            f"give at least {LEAST_SUFFIX} characters",
            id=text,
        )
    return next(iter(found))


def _with_prefix(store: Store, digits: str, tenant: str) -> list[JobRow]:
    """Return the oldest jobs whose id starts with these digits, one more than are listed."""
    low, high = int(digits.ljust(32, "0"), 16), int(digits.ljust(32, "f"), 16)
    after = encode_cursor(Sort.OLDEST, UUID(int=low - 1)) if low else None
    page = store.jobs(JobFilter(tenant), sort=Sort.OLDEST, limit=CANDIDATES + 1, after=after)
    return [job for job in takewhile(lambda job: job.id.int <= high, page.items) if job.id.int >= low]


def _with_suffix(store: Store, digits: str, tenant: str) -> tuple[list[JobRow], bool]:
    """Return the jobs whose id ends with these digits, and whether every job of the store was searched."""
    page = store.jobs(JobFilter(tenant, id_suffix=digits), limit=CANDIDATES + 1)
    found, whole = page.items, page.next is None
    if not whole:
        found += store.jobs(JobFilter(tenant, states=ACTIVE, id_suffix=digits), limit=CANDIDATES + 1).items
    # A store that ignores this condition must not return another job.
    return [job for job in found if job.id.hex.endswith(digits)], whole


def _nothing(text: str, *, whole: bool) -> str:
    if whole:
        return f"no job has an id that begins or ends with {text!r}"
    return (
        f"no job has an id that begins with {text!r}, and neither the newest {LOOK:,} jobs nor the active ones "
        "have one that ends with it; give the full id or its beginning"
    )


def _several(text: str, jobs: list[JobRow]) -> str:
    listed = "\n".join(f"  {job.id}  {job.state.value:<13}  {job.task}" for job in jobs[:CANDIDATES])
    more = "\n  …" if len(jobs) > CANDIDATES else ""
    return f"{text!r} matches several jobs; give more characters:\n{listed}{more}"


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
