"""Checks of graphs that all stores share, before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import Additions, Edge, NewGroup
from tidemill.domain.job import Finish, NewJob
from tidemill.domain.states import ExecutionState, JobState
from tidemill.errors import JobNotFound, UsageError, WaitCycle


def keyed_by_flow(groups: Sequence[NewGroup]) -> NewGroup:
    """The group that is the flow itself: the first."""
    if not groups:
        raise UsageError("a flow needs a group; give the flow itself as the first one")
    return groups[0]


def refuse_bad_graph(
    tenant: str, groups: Sequence[NewGroup], jobs: Sequence[NewJob], edges: Sequence[Edge]
) -> None:
    """Refuse jobs and groups of another tenant, repeated edges, and unique keys of jobs that a join counts."""
    for id, owner in [(row.id, row.tenant) for row in groups] + [(row.id, row.tenant) for row in jobs]:
        if tenant not in (ALL_TENANTS, owner):
            raise UsageError(f"{id} belongs to tenant {owner!r}, the flow to {tenant!r}", id=id)
    pairs = {(edge.job_id, edge.needs_id) for edge in edges}
    if len(pairs) < len(edges):
        raise UsageError("two edges connect the same jobs; give one condition for each pair of jobs")
    for edge in edges:
        if edge.job_id == edge.needs_id:
            raise WaitCycle(f"job {edge.job_id} cannot wait for itself", ids=frozenset({edge.job_id}))
    counted = {edge.job_id for edge in edges} | {edge.needs_id for edge in edges}
    for job in jobs:
        if job.unique is not None and (job.details.group_id is not None or job.id in counted):
            raise UsageError(f"job {job.id} of a flow cannot have a unique key; key the flow", id=job.id)


def refuse_unknown(ids: Iterable[UUID]) -> None:
    """Refuse ids that the tenant does not have."""
    for id in sorted(ids, key=lambda id: id.int):
        raise JobNotFound(f"there is no job or group {id} to wait for", id=id)


def refuse_cycle(job_id: UUID, needs: Collection[UUID], waiters: Collection[UUID]) -> None:
    """Refuse a job that would wait for a job or group that waits for it."""
    for id in needs:
        if id in waiters:
            raise WaitCycle(
                f"job {job_id} cannot wait for {id}, which waits for it", ids=frozenset({job_id}), needs=id
            )


def added(finish: Finish) -> Additions | None:
    """The additions of a finish, if its transition lets the store write them."""
    change = finish.transition
    writes = change.state is JobState.COMPLETED or (
        change.state is JobState.WAITING and change.execution is ExecutionState.SUSPENDED
    )
    return finish.additions if writes else None
