"""Actions of people on a flow: retry from a node, and skip a node."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from tidemill.archive.flows import groups_of
from tidemill.domain.flow_plan import REQUIRED
from tidemill.domain.flow_states import SKIP_REASON, node_label
from tidemill.domain.graph import PAST_SHARD, Edge, EdgeCondition, NewJoin, edge_shard, job_joins
from tidemill.domain.job import JobRow, Move
from tidemill.domain.states import ENDED, JobState
from tidemill.errors import IllegalTransition, UsageError

if TYPE_CHECKING:
    from tidemill.client.flows.run import FlowNode, FlowRun

_BAD = frozenset({JobState.FAILED, JobState.TIMED_OUT, JobState.DEAD_LETTERED})
_PAGE = 500
_ROUNDS = 3  # looks for nodes that were skipped while a flow is retried


def retry(run: FlowRun, name: str | None, *, downstream: bool) -> None:
    """Reopen failed nodes and the nodes that were skipped because of them, in one transaction."""
    first = _retry(run, name, downstream=downstream)
    for _ in range(_ROUNDS):
        # The cascade may have skipped further nodes since the flow was read.
        jobs = {job.id: job for job in run._rows()}
        again = _followers(first, _users(run, jobs), jobs, downstream=False)
        if not again:
            return
        moves = [_waiting(jobs[id]) for id in again]
        run._where.reopen(run.id, moves, tenant=run.tenant, now=run._client.pin)


def _retry(run: FlowRun, name: str | None, *, downstream: bool) -> set[UUID]:
    jobs = {job.id: job for job in run._rows()}
    users = _users(run, jobs)
    if name is None:
        if downstream:
            raise UsageError("downstream=True needs from_=, the node to begin with")
        first = {id for id, job in jobs.items() if job.state in _BAD}
    else:
        named = [job for job in jobs.values() if job.details.node == name]
        if not named:
            run.node(name)  # raises with the names of the nodes
        wanted = ENDED if downstream else _BAD | {JobState.CANCELLED}
        first = {job.id for job in named if job.state in wanted}
    if not first:
        what = "it has no failed node" if name is None else f"node {name!r} has not failed"
        raise IllegalTransition(f"cannot retry flow {run.id}: {what}", id=run.id)
    again = _followers(first, users, jobs, downstream=downstream)
    moves = [_again(jobs[id], "retried manually") for id in first]
    needs = {edge.job_id for edges in users.values() for edge in edges}
    moves += [_waiting(jobs[id]) if id in needs else _again(jobs[id], "retried manually") for id in again]
    inside = {*jobs, *(group.id for group in groups_of(run._where, run.row))}
    holds = run.row.rules.get("on_failure") == "hold"
    edges, joins = _renewed([jobs[id] for id in again if id in needs], users, inside, holds=holds)
    store = run._where
    with store.transaction():
        changed = store.reopen(
            run.id, moves, tenant=run.tenant, edges=edges, joins=joins, now=run._client.pin
        )
        run._note(
            "retried",
            {"status": run.row.state.value, "round": run.row.round},
            {"nodes": sorted({jobs[id].details.node or "" for id in changed})[:50], "jobs": len(changed)},
        )
    store.notify({"change", *(f"ready:{jobs[id].queue}" for id in changed)})
    return first


def _renewed(
    jobs: Iterable[JobRow], users: Mapping[UUID, list[Edge]], inside: Collection[UUID], *, holds: bool
) -> tuple[list[Edge], list[NewJoin]]:
    """The edges and joins of nodes that wait again although they had suspended: the wait has replaced their join."""
    past: dict[UUID, list[Edge]] = {}
    for need, known in users.items():
        for edge in known:
            # What the function itself has waited for, such as its children, is no need of the node.
            if edge.shard == PAST_SHARD and need in inside:
                past.setdefault(edge.job_id, []).append(edge)
    edges: list[Edge] = []
    joins: list[NewJoin] = []
    for job in jobs:
        own = past.get(job.id, [])
        if not own:
            continue
        given = job.details.options.get(REQUIRED)
        required = min(given, len(own)) if isinstance(given, int) else None
        edges += [
            edge._replace(shard=edge_shard(place, len(own), required=required))
            for place, edge in enumerate(own)
        ]
        hold = holds and all(edge.condition is EdgeCondition.SUCCESS for edge in own)
        joins += job_joins(job.id, len(own), required=required, hold=hold)
    return edges, joins


def skip(run: FlowRun, name: str, result: object) -> None:
    """Complete a node that waits, is pending or failed, with a result for the nodes that read it."""
    node: FlowNode = run.node(name)
    job = node.job.row
    if job.state is JobState.COMPLETED or node.status == "skipped":
        raise IllegalTransition(f"cannot skip node {name!r}: it is {node.status}", id=job.id)
    if job.state in (JobState.RUNNING, JobState.CLAIMED):
        raise IllegalTransition(f"cannot skip node {name!r}: it is running; cancel its job first", id=job.id)
    from tidemill.client.flows.run import takes

    if result is None and (reader := next((other for other in run._rows() if takes(other, job.id)), None)):
        raise UsageError(
            f"node {reader.details.node!r} takes the result of {name!r}; give one: skip({name!r}, result=…)"
        )
    text = None if result is None else json.dumps(result, separators=(",", ":"), ensure_ascii=False)
    store, now = run._where, run._client.pin
    with store.transaction():
        if job.state in ENDED:
            # A failed node ended uncounted for its dependants: it is reopened first, which counts it back.
            reopened = [_again(job, "skipped by a person")]
            reopened += [_waiting(other) for other in _skipped_after(run, job)]
            store.reopen(run.id, reopened, tenant=run.tenant, now=now)
        expect = frozenset({JobState.PENDING, JobState.WAITING, JobState.SCHEDULED})
        reason = "skipped by a person"
        done = store.move(
            [Move(job.id, job.tenant, expect, JobState.COMPLETED, reason, result=text)], now=now
        )
        if not done:
            raise IllegalTransition(f"cannot skip node {name!r}: its status has changed", id=job.id)
        run._note("node_skipped", {"node": name, "status": job.state.value}, {"node": name, "result": result})
    store.notify({"ended", "change", "cascade"})


def _skipped_after(run: FlowRun, job: JobRow) -> Iterable[JobRow]:
    jobs = {other.id: other for other in run._rows()}
    return [jobs[id] for id in _followers({job.id}, _users(run, jobs), jobs, downstream=False)]


def _users(run: FlowRun, jobs: Mapping[UUID, JobRow]) -> dict[UUID, list[Edge]]:
    """The edges of a flow by the ids that they need; members of a group lead to the users of the group."""
    store = run._where
    users: dict[UUID, list[Edge]] = {}
    ids = [*jobs, *(group.id for group in groups_of(store, run.row))]
    for at in range(0, len(ids), _PAGE):
        for edge in store.edges_of(ids[at : at + _PAGE]):
            known = users.setdefault(edge.needs_id, [])
            if edge not in known[-1:]:
                known.append(edge)
    return users


def _followers(
    first: set[UUID], users: Mapping[UUID, list[Edge]], jobs: Mapping[UUID, JobRow], *, downstream: bool
) -> list[UUID]:
    """The jobs after these that were skipped; with ``downstream``, also those that ended in another way."""
    seen, found = set(first), list[UUID]()
    ahead = list(first)
    while ahead:
        id = ahead.pop()
        group = jobs[id].details.group_id if id in jobs else None
        edges = [*users.get(id, ()), *(users.get(group, ()) if group is not None else ())]
        for edge in edges:
            if edge.job_id in seen or edge.job_id not in jobs:
                continue
            seen.add(edge.job_id)
            job = jobs[edge.job_id]
            if _is_skipped(job) or (downstream and job.state in ENDED):
                found.append(job.id)
                ahead.append(job.id)
    return found


def _is_skipped(job: JobRow) -> bool:
    return node_label(job) == "skipped" and (job.reason or "").startswith(SKIP_REASON)


def _again(job: JobRow, reason: str) -> Move:
    return Move(job.id, job.tenant, frozenset({job.state}), JobState.PENDING, reason, restart=True)


def _waiting(job: JobRow) -> Move:
    return Move(job.id, job.tenant, frozenset({job.state}), JobState.WAITING, "waits again", restart=True)
