"""Waiting jobs that this version of the code cannot run.

Either their task is unknown, or its arguments cannot be parsed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

from tidemill.domain.filters import JobFilter, Sort
from tidemill.domain.job import JobRow
from tidemill.domain.states import JobState
from tidemill.errors import BadArguments, BlobDamaged
from tidemill.stores.base import Store
from tidemill.stores.large_values import read_value
from tidemill.tasks.registry import Registry

UNKNOWN = "unknown task"

_WAITING = frozenset({JobState.PENDING, JobState.SCHEDULED, JobState.WAITING})
_PAGE = 1_000
_EXAMPLES = 3


@dataclass(slots=True)
class UnfitJobs:
    """Jobs of one task with one problem: their number, and the ids of the first."""

    task: str
    problem: str
    count: int = 0
    examples: list[UUID] = field(default_factory=list)


@dataclass(slots=True)
class CodeFit:
    """Result for the oldest ``looked`` jobs; ``more`` is true if there were others."""

    looked: int = 0
    more: bool = False
    unreadable: list[UnfitJobs] = field(default_factory=list)


def check_waiting(store: Store, registry: Registry, *, tenant: str, most: int) -> CodeFit:
    """Parse the arguments of the oldest ``most`` waiting jobs as a worker with these tasks would."""
    found = CodeFit()
    groups: dict[tuple[str, str], UnfitJobs] = {}
    for job in _waiting(store, tenant):
        if found.looked >= most:
            found.more = True
            break
        found.looked += 1
        problem = _problem(job, registry, store)
        if problem is not None:
            group = groups.setdefault((job.task, problem), UnfitJobs(job.task, problem))
            group.count += 1
            if len(group.examples) < _EXAMPLES:
                group.examples.append(job.id)
    found.unreadable = sorted(groups.values(), key=lambda group: (-group.count, group.task, group.problem))
    return found


def _waiting(store: Store, tenant: str) -> Iterator[JobRow]:
    where, after = JobFilter(tenant, states=_WAITING), None
    while True:
        page = store.jobs(where, sort=Sort.OLDEST, limit=_PAGE, after=after)
        yield from page.items
        if page.next is None:
            return
        after = page.next


def _problem(job: JobRow, registry: Registry, store: Store) -> str | None:
    if job.task not in registry:
        return UNKNOWN
    try:
        registry.get(job.task).arguments.load(read_value(store, job.args), job.id, job.details.definition_id)
    except BlobDamaged as error:
        return error.message
    except BadArguments as error:
        # Without the values, so that jobs with the same problem are counted together.
        faults = [(fault["field"], str(fault["message"]).partition(" (got ")[0]) for fault in _faults(error)]
        return "; ".join(f"{name}: {message}" for name, message in faults) or error.message
    return None


def _faults(error: BadArguments) -> list[dict[str, object]]:
    found = error.details.get("errors")
    return found if isinstance(found, list) else []
