"""The jobs around one job: its ancestors up to the root, its children and their children."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tidemill.client.inspection import Inspection
from tidemill.dashboard.job_details import took
from tidemill.dashboard.page_request import PageRequest
from tidemill.domain.job import JobRow
from tidemill.errors import TidemillError

ANCESTORS = 10
"""Most ancestors that a tree shows."""

CHILDREN = 20
"""Most children of the job."""

GRANDCHILDREN = 5
"""Most children of one child."""

READ = 200
"""Most grandchildren that one read returns."""


class Branch(NamedTuple):
    """One job of the tree with the jobs below it.

    ``more`` is the number of further children; None if there may be some and their number is unknown.
    """

    job: JobRow
    took: timedelta | None
    below: tuple[Branch, ...] = ()
    more: int | None = 0
    is_self: bool = False
    store: str | None = None  #: of a job in another store of the app

    def jobs(self) -> Iterable[JobRow]:
        """Return this job and all jobs below it."""
        yield self.job
        for branch in self.below:
            yield from branch.jobs()


class JobTree(NamedTuple):
    """The tree from its topmost job, and why the tree does not begin at the root, if so."""

    top: Branch
    above: str | None = None

    @property
    def has_relatives(self) -> bool:
        """Whether there is anything besides the job itself."""
        return self.above is not None or self.top.more != 0 or bool(self.top.below)

    def ids(self) -> set[UUID]:
        """Return the ids of all jobs in the tree."""
        return {job.id for job in self.top.jobs()}


def job_tree(
    request: PageRequest,
    row: JobRow,
    children: Sequence[JobRow],
    already_read: Mapping[UUID, JobRow],
    now: datetime,
    *,
    has_more: bool,
) -> JobTree:
    """Build the tree of a job from its first children.

    ``already_read`` are jobs that the reader may see. One read returns the grandchildren, one counts the
    children if there are more than the page shows, and an ancestor needs a read only if it is not in ``already_read``.
    """
    below = _children(request, children, now)
    more = _more_children(request, row, len(children)) if has_more else 0
    own = Branch(row, took(row, now), below, more, is_self=True)
    return _with_ancestors(request, own, already_read, now)


def _children(request: PageRequest, children: Sequence[JobRow], now: datetime) -> tuple[Branch, ...]:
    if not children:
        return ()
    page = request.inspection.children([child.id for child in children], tenant=request.tenant, limit=READ)
    by_parent: defaultdict[UUID | None, list[JobRow]] = defaultdict(list)
    for job in page.items:
        if request.permits("jobs.read", job.task, job.queue):
            by_parent[job.details.parent_id].append(job)
    branches = []
    for child in children:
        own = by_parent[child.id]
        leaves = tuple(Branch(job, took(job, now)) for job in own[:GRANDCHILDREN])
        more = None if page.next is not None else len(own) - len(leaves)
        branches.append(Branch(child, took(child, now), leaves, more))
    return tuple(branches)


def _more_children(request: PageRequest, row: JobRow, shown: int) -> int | None:
    """Return how many children the page does not show. A count would reveal jobs that a grant hides."""
    if request.identity.grants:
        return None
    return max(request.app.jobs.count(parent_id=row.id, tenant=request.tenant) - shown, 0)


def _with_ancestors(
    request: PageRequest, own: Branch, already_read: Mapping[UUID, JobRow], now: datetime
) -> JobTree:
    top, seen = own, {own.job.id}
    while (id := top.job.details.parent_id) is not None and id not in seen:
        if len(seen) > ANCESTORS:
            return JobTree(top, "More ancestors are above; open the topmost job to see them.")
        ancestor = _ancestor(request, id, already_read)
        if ancestor is None:
            return JobTree(top, "The job above was deleted, or you may not see it.")
        row, store = ancestor
        seen.add(row.id)
        top = Branch(row, took(row, now), (top,), store=store)
    return JobTree(top)


def _ancestor(
    request: PageRequest, id: UUID, already_read: Mapping[UUID, JobRow]
) -> tuple[JobRow, str | None] | None:
    """Return an ancestor and its store if that is another one; None if the reader may not see the job."""
    if id in already_read:
        return already_read[id], None
    inspection: Inspection = request.inspection
    live = inspection.live_jobs([id], tenant=request.tenant)
    store = None
    if not live:
        # It may be in the archive, or in another store of the app.
        try:
            row, name = inspection.find_job(id, tenant=request.tenant)
        except TidemillError:
            return None
        live, store = [row], None if name == request.service.store_name else name
    row = live[0]
    return (row, store) if request.permits("jobs.read", row.task, row.queue) else None
