"""Reasons why a job of a flow waits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from tidemill.domain.flow_states import node_label
from tidemill.domain.graph import ENDLESS_SPARE, Edge, EdgeCondition, FlowRow, meets, outcome_of
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED, JobState
from tidemill.stores.base import Store

SHOWN = 5
"""Needs that a sentence names."""


def flow_reasons(store: Store, job: JobRow, now: datetime) -> Iterator[tuple[str, str]]:
    """Yield codes and sentences about what a waiting job needs."""
    edges = [edge for edge in store.edges_of([job.id]) if edge.job_id == job.id and edge.shard >= 0]
    joins = store.joins_of([job.id])
    if not edges or not joins:
        return
    ids = [edge.needs_id for edge in edges]
    jobs = {row.id: row for row in store.get(ids[:1_000], tenant=job.tenant)}
    groups = {row.id: row for row in store.flow([id for id in ids if id not in jobs], tenant=job.tenant)}
    spare = min(join.spare for join in joins)
    broken = [edge for edge in edges if _is_broken(edge, jobs, groups)]
    if spare < 0:
        names = _names(broken, jobs, groups, now)
        yield "cannot_start", f"It can no longer start: needs {names}. It is skipped within seconds."
        return
    if spare > ENDLESS_SPARE // 2 and broken:
        names = _names(broken, jobs, groups, now)
        yield "held", f"The flow holds it after a failure: {names}. Retry, skip or cancel in the flow."
    open_jobs = [edge for edge in edges if edge.needs_id in jobs and jobs[edge.needs_id].state not in ENDED]
    open_groups = [
        edge for edge in edges if edge.needs_id in groups and groups[edge.needs_id].ended_at is None
    ]
    if open_jobs:
        left = sum(join.remaining for join in joins if len(joins) == 1 or join.shard)
        yield (
            "waits_for_jobs",
            f"It needs {left:,} of {len(edges):,} more: {_names(open_jobs, jobs, groups, now)}.",
        )
    for edge in open_groups[:SHOWN]:
        yield "waits_for_group", _group(store, edge, groups[edge.needs_id])


def _is_broken(edge: Edge, jobs: dict[UUID, JobRow], groups: dict[UUID, FlowRow]) -> bool:
    if edge.condition is EdgeCondition.FIRST_FAILURE:
        return False
    job, group = jobs.get(edge.needs_id), groups.get(edge.needs_id)
    if job is not None:
        return job.state in ENDED and not meets(edge.condition, outcome_of(job.state))
    return (
        group is not None
        and group.ended_at is not None
        and not meets(edge.condition, outcome_of(group.state))
    )


def _names(edges: list[Edge], jobs: dict[UUID, JobRow], groups: dict[UUID, FlowRow], now: datetime) -> str:
    shown = []
    for edge in edges[:SHOWN]:
        job, group = jobs.get(edge.needs_id), groups.get(edge.needs_id)
        if job is not None:
            shown.append(f"{job.details.node or job.task} ({_state(job, now)})")
        elif group is not None:
            shown.append(f"{group.name} ({group.state})")
    more = f" and {len(edges) - SHOWN:,} more" if len(edges) > SHOWN else ""
    return ", ".join(shown) + more


def _state(job: JobRow, now: datetime) -> str:
    if job.state is JobState.RUNNING and job.started_at is not None:
        return f"running for {max((now - job.started_at).total_seconds(), 0):.0f} s"
    if job.state is JobState.SCHEDULED and job.run_at > now:
        word = "retrying" if job.attempt else "due"
        return f"{word} in {(job.run_at - now).total_seconds():.0f} s"
    return node_label(job).replace("_", " ")


def _group(store: Store, edge: Edge, group: FlowRow) -> str:
    (counts,) = store.group_counts([group.id])
    ended = counts.total - counts.remaining
    failed = f", {counts.bad:,} failed" if counts.bad else ""
    what = "the first failure in" if edge.condition is EdgeCondition.FIRST_FAILURE else "the end of"
    held = "; it is open for more" if group.held else ""
    return f"It waits for {what} {group.name}: {ended:,} of {counts.total:,} have ended{failed}{held}."
