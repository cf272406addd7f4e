"""Job ids as people type them: in full, or a unique prefix or suffix."""

from __future__ import annotations

from itertools import takewhile
from uuid import UUID

from tidemill.domain.filters import LOOK, JobFilter, Sort, encode_cursor
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED, JobState
from tidemill.errors import BadSettings, JobNotFound
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
