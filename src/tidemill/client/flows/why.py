"""Reasons why a job of a flow waits, and why a flow has not ended or has failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tidemill.archive.flows import groups_of
from tidemill.domain.flow_states import fails_flow, node_label
from tidemill.domain.flow_timeline import label_of
from tidemill.domain.graph import ENDLESS_SPARE, Edge, EdgeCondition, FlowRow, FlowState, meets, outcome_of
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.stores.base import Store

if TYPE_CHECKING:
    from tidemill.client.flows.run import FlowNode, FlowRun

SHOWN = 5
"""Needs that a sentence names."""
NODES = 20
"""Nodes of a flow whose reasons are read."""
_PAGE = 1_000


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


# The whole flow ----------------------------------------------------------------------------------------------------------


class NodeReason(NamedTuple):
    """A reason as a stable code and a sentence, and the node that it is about; without a node it is about the flow."""

    code: str
    text: str
    node: str | None = None
    id: UUID | None = None


def why_flow(run: FlowRun, name: str | None) -> list[NodeReason]:
    """The reasons of one node, or of the nodes that the others wait for."""
    if name is not None:
        return list(_of_nodes([run.node(name)]))
    run.refresh()
    if run.ended:
        return list(_of_ended(run))
    reasons = list(_of_flow(run))
    nodes = [node for node in run.nodes() if node.job.row.state not in ENDED]
    front = _frontier(run, nodes)
    reasons += _of_nodes(front[:NODES])
    if (hidden := len(front) - NODES) > 0:
        reasons.append(NodeReason("more", f"{hidden:,} more nodes have not ended for reasons of their own."))
    if later := len(nodes) - len(front):
        are = "1 more node waits" if later == 1 else f"{later:,} more nodes wait"
        reasons.append(NodeReason("waits_for_nodes", f"{are} for these."))
    return reasons


def _of_ended(run: FlowRun) -> Iterator[NodeReason]:
    """How the flow ended, and the nodes that failed."""
    row = run.row
    text = f"It {'was ' if row.state is FlowState.CANCELLED else ''}{row.state}"
    yield NodeReason(row.state.value, f"{text}: {row.cancel_reason}." if row.cancel_reason else f"{text}.")
    if row.state is not FlowState.FAILED:
        return
    failed = [node for node in run.nodes() if fails_flow(node.job.row)]
    yield from _of_nodes(failed[:NODES])
    if (hidden := len(failed) - NODES) > 0:
        yield NodeReason("more", "1 more node failed." if hidden == 1 else f"{hidden:,} more nodes failed.")


def _of_flow(run: FlowRun) -> Iterator[NodeReason]:
    row = run.row
    if row.cancel_reason is not None:
        yield NodeReason("cancelled", f"It is being cancelled: {row.cancel_reason}.")
    elif row.stops:
        yield NodeReason("stopping", "It stops after a failure: no further node begins.")


def _frontier(run: FlowRun, nodes: Sequence[FlowNode]) -> list[FlowNode]:
    """The nodes that wait for no other node of the flow; those that run come last, because they do not wait."""
    waiting = [node.id for node in nodes if node.job.row.state is JobState.WAITING]
    open_ids = {node.id for node in nodes}
    open_ids |= {group.id for group in groups_of(run._where, run.row) if group.ended_at is None}
    blocked: set[UUID] = set()
    for at in range(0, len(waiting), _PAGE):
        page = set(waiting[at : at + _PAGE])
        edges = run._where.edges_of(page)
        blocked |= {
            edge.job_id
            for edge in edges
            if edge.job_id in page and edge.shard >= 0 and edge.needs_id in open_ids
        }
    free = [node for node in nodes if node.id not in blocked]
    return sorted(free, key=lambda node: node.job.row.state in HELD)


def _of_nodes(nodes: Iterable[FlowNode]) -> Iterator[NodeReason]:
    for node in nodes:
        label = label_of(node.name, node.position)
        for reason in node.job.why():
            yield NodeReason(reason.code, reason.text, label, node.id)
