"""The compilation of a drafted flow into groups, jobs, edges and joins.

The client drafts nodes; this module checks the graph and computes the rows of one start. A flow with nodes that run at its end or at
its first failure counts all other nodes in an inner group, the *body*, so that those nodes need one edge instead of one per node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from tidemill.domain.graph import (
    Additions,
    Edge,
    EdgeCondition,
    GroupKind,
    NewGroup,
    NewJoin,
    edge_shard,
    group_joins,
    grown_joins,
    grown_shard,
    job_joins,
    shard_of,
    tied_jobs,
)
from tidemill.domain.job import Details, NewJob
from tidemill.domain.references import INPUTS, WHEN, StoredReference
from tidemill.errors import BadFlow

MOST_NODES = 100_000
MOST_EDGES = 1_000_000
MOST_NEEDS = 10_000
DEEPEST = 8
"""How deep flows may include flows."""
WAITS = "waits for other nodes of its flow"
REQUIRED = "required"
"""Option of a job that needs only some of its nodes: how many."""


class NodeKind(StrEnum):
    """The kind of a node."""

    JOB = "job"
    MAP = "map"  #: one job per item
    INCLUDE = "include"  #: the nodes of another flow


class NodeRole(StrEnum):
    """When a node runs."""

    BODY = "body"
    ON_FAILURE = "on_failure"  #: at the first failure of a node of the body
    FINALLY = "finally"  #: after all other nodes


class FailureMode(StrEnum):
    """What happens to a flow after the failure of a node."""

    SKIP = "skip"  #: jobs that need the node are skipped, other branches continue
    STOP = "stop"  #: no further node begins
    HOLD = "hold"  #: jobs that need the node wait until a person retries, skips or cancels


@dataclass(slots=True, eq=False)
class DraftNode:
    """A node as drafted: its id is that of its job, or of its group."""

    id: UUID
    name: str
    kind: NodeKind = NodeKind.JOB
    jobs: list[NewJob] = field(default_factory=list)  #: one, the members of a map, or the job that makes them
    needs: dict[UUID, EdgeCondition] = field(default_factory=dict)  #: in the order in which they were named
    required: int | None = None  #: how many of the needs must count; None: all
    may_fail: bool = False
    role: NodeRole = NodeRole.BODY
    inputs: list[StoredReference] = field(default_factory=list)  #: read by its arguments and condition
    when: Mapping[str, object] | None = None
    flow: Draft | None = None  #: the included flow
    grows: bool = False  #: a map whose job makes the members later


@dataclass(slots=True, eq=False)
class Draft:
    """A flow as drafted."""

    id: UUID
    tenant: str
    name: str
    key: str | None = None
    on_failure: FailureMode = FailureMode.SKIP
    stop_running: bool = False
    expires_at: datetime | None = None
    nodes: list[DraftNode] = field(default_factory=list)
    returns: StoredReference | None = None
    created_by: str | None = None
    correlation_id: str | None = None


class FlowPlan(NamedTuple):
    """The rows of one start, the flow's own group first."""

    groups: list[NewGroup]
    jobs: list[NewJob]
    edges: list[Edge]
    joins: list[NewJoin]


def unique_name(name: str, taken: Iterable[str]) -> str:
    """The name, with ``-2``, ``-3`` and so on if it is taken.

    >>> unique_name("load", {"load", "load-2"})
    'load-3'
    """
    names = set(taken)
    if name not in names:
        return name
    number = 2
    while f"{name}-{number}" in names:
        number += 1
    return f"{name}-{number}"


def plan(draft: Draft) -> FlowPlan:
    """Check a drafted flow and compute its rows. Raises ``BadFlow`` for a graph that could not run."""
    _check(draft)
    made = _Rows(draft)
    made.flow(draft, draft.id, None, 0, "")
    if len(made.edges) > MOST_EDGES:
        raise BadFlow(
            f"flow {draft.name!r} has {len(made.edges):,} edges; at most {MOST_EDGES:,} are possible"
        )
    return FlowPlan(made.groups, tied_jobs(made.jobs, made.edges), made.edges, made.joins)


def plan_growth(
    nodes: Sequence[DraftNode],
    details: Details,
    tenant: str,
    before: Mapping[UUID, Sequence[UUID]],
    *,
    first: int = 0,
) -> Additions:
    """The rows of nodes that a running job with these details adds to its group.

    ``before`` has, for a new node, the waiting jobs that are to wait for it as well. ``first`` spreads the counts of several growing
    jobs over the rows of the join.
    """
    group = details.group_id
    assert group is not None  # only members of a group can grow it
    made = _Rows(Draft(details.flow_id or group, tenant, "", correlation_id=details.correlation_id))
    for place, node in enumerate(nodes):
        made._node(node, group, grown_shard(first + place), "")
    made.joins += grown_joins(group, first, len(nodes))
    for node in nodes:
        for place, id in enumerate(before.get(node.id, ())):
            shard = grown_shard(first + 8 * place)
            made.edges.append(Edge(id, node.id, EdgeCondition.SUCCESS, shard))
            made.joins.append(NewJoin(id, shard, 1, 0, 1))
    return Additions(
        tuple(tied_jobs(made.jobs, made.edges)), tuple(made.edges), tuple(made.joins), tuple(made.groups)
    )


def all_nodes(draft: Draft) -> Iterator[DraftNode]:
    """The nodes of a flow and of the flows that it includes."""
    for node in draft.nodes:
        yield node
        if node.flow is not None:
            yield from all_nodes(node.flow)


# Checks ------------------------------------------------------------------------------------------------------------------


def _check(draft: Draft) -> None:
    count = sum(len(node.jobs) or 1 for node in all_nodes(draft))
    if not draft.nodes:
        raise BadFlow(f"flow {draft.name!r} has no nodes; add one with flow.add(task, …)")
    if count > MOST_NODES:
        raise BadFlow(f"flow {draft.name!r} has {count:,} nodes; at most {MOST_NODES:,} are possible")
    _check_names(draft)
    _check_needs(draft, 1)
    _check_returns(draft)
    _check_cycle(draft)


def _check_names(draft: Draft) -> None:
    names = set[str]()
    for node in draft.nodes:
        if node.name in names:
            raise BadFlow(
                f"flow {draft.name!r} has two nodes {node.name!r}; give one another name with .named(…)"
            )
        names.add(node.name)


def _check_needs(draft: Draft, depth: int) -> None:
    if depth > DEEPEST:
        raise BadFlow(f"flow {draft.name!r} is included {depth} levels deep; at most {DEEPEST} are possible")
    own = {node.id: node for node in draft.nodes}
    visible = _visible(draft)
    for node in draft.nodes:
        for id in node.needs:
            if id not in own:
                raise BadFlow(f"node {node.name!r} waits for a node that is not in flow {draft.name!r}")
            if own[id].role is not NodeRole.BODY and node.role is NodeRole.BODY:
                raise BadFlow(
                    f"node {node.name!r} waits for {own[id].name!r}, which runs after all other nodes"
                )
        for reference in node.inputs:
            if reference.id not in visible:
                raise BadFlow(
                    f"node {node.name!r} takes the result of a node that is not in flow {draft.name!r}"
                )
        if len(node.needs) > MOST_NEEDS:
            raise BadFlow(
                f"node {node.name!r} waits for {len(node.needs):,} nodes; at most {MOST_NEEDS:,} are possible,"
                " a map counts as one"
            )
        if node.required is not None and not 1 <= node.required <= max(len(node.needs), 1):
            raise BadFlow(
                f"node {node.name!r} needs {node.required} of {len(node.needs)} nodes; give 1 to {len(node.needs)}"
            )
        if node.flow is not None:
            _check_needs(node.flow, depth + 1)


def _visible(draft: Draft) -> set[UUID]:
    """The ids whose results a node may take: those of its flow, and what included flows return."""
    found = {node.id for node in draft.nodes}
    for node in draft.nodes:
        if node.flow is not None and node.flow.returns is not None:
            found.add(node.flow.returns.id)
    return found


def _check_returns(draft: Draft) -> None:
    if draft.returns is not None and draft.returns.id not in _visible(draft):
        raise BadFlow(f"flow {draft.name!r} returns the result of a node that is not in it")


def _check_cycle(draft: Draft) -> None:
    """Raise for nodes that wait for each other; included flows wait for nothing outside of their own."""
    names = {node.id: node.name for node in draft.nodes}
    waits = {node.id: [id for id in node.needs if id in names] for node in draft.nodes}
    done = set[UUID]()
    for start, first_needs in waits.items():
        if start in done:
            continue
        path: list[UUID] = [start]
        on_path = {start}
        open_needs = [iter(first_needs)]
        while path:
            following = next(open_needs[-1], None)
            if following is None:
                done.add(path[-1])
                on_path.discard(path.pop())
                open_needs.pop()
            elif following in on_path:
                circle = [*path[path.index(following) :], following]
                shown = " → ".join(names[id] for id in circle[:10])
                raise BadFlow(f"the nodes of flow {draft.name!r} wait for each other: {shown}")
            elif following not in done:
                path.append(following)
                on_path.add(following)
                open_needs.append(iter(waits[following]))
    for node in draft.nodes:
        if node.flow is not None:
            _check_cycle(node.flow)


# Rows --------------------------------------------------------------------------------------------------------------------


class _Rows:
    """The rows of a start, collected from the outermost flow to the innermost."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._holds = draft.on_failure is FailureMode.HOLD
        self.groups: list[NewGroup] = []
        self.jobs: list[NewJob] = []
        self.edges: list[Edge] = []
        self.joins: list[NewJoin] = []

    def flow(
        self,
        draft: Draft,
        id: UUID,
        parent: UUID | None,
        shard: int,
        prefix: str,
        outer: DraftNode | None = None,
    ) -> list[UUID]:
        """Add a flow as the group ``id``, and return the ids of the groups inside it that count nodes of its body."""
        body = [node for node in draft.nodes if node.role is NodeRole.BODY]
        late = [node for node in draft.nodes if node.role is not NodeRole.BODY]
        starts = [node.jobs[0].id for node in body if node.jobs and not node.needs] if outer else []
        self._group(
            id,
            GroupKind.FLOW if outer is None else GroupKind.MAP,
            draft.name if outer is None else prefix.rstrip("/"),
            parent,
            shard,
            self._rules(draft, late, outer, starts),
        )
        needs = outer.needs if outer is not None else {}
        if not late:
            return [id, *self._members(id, body, prefix, 0, needs, outer)]
        inner = UUID(int=id.int ^ 1)
        self.joins += group_joins(id, 1 + len(late))
        self._group(inner, GroupKind.MAP, f"{prefix}body", id, shard_of(0, 1 + len(late)), {"inner": "body"})
        counted = [inner, *self._members(inner, body, prefix, 0, needs, outer)]
        self._late(id, late, counted, prefix)
        return [id, *counted]

    def _rules(
        self, draft: Draft, late: list[DraftNode], outer: DraftNode | None, starts: list[UUID]
    ) -> dict[str, object]:
        rules: dict[str, object] = (
            {"on_failure": draft.on_failure.value} if outer is None else {"inner": "flow"}
        )
        if draft.stop_running:
            rules["stop_running"] = True
        if draft.returns is not None:
            rules["returns"] = draft.returns.data()
        for role in (NodeRole.FINALLY, NodeRole.ON_FAILURE):
            if ids := [str(node.id) for node in late if node.role is role]:
                rules[role.value if role is NodeRole.FINALLY else "handlers"] = ids
        if outer is not None and outer.needs and starts:
            rules["starts"] = [str(id) for id in starts]
        return rules

    def _group(
        self,
        id: UUID,
        kind: GroupKind,
        name: str,
        parent: UUID | None,
        shard: int,
        rules: Mapping[str, object],
    ) -> None:
        draft, is_flow = self._draft, kind is GroupKind.FLOW
        self.groups.append(
            NewGroup(
                id,
                draft.tenant,
                kind,
                name,
                key=draft.key if is_flow else None,
                group_id=parent,
                group_shard=shard,
                rules=rules if is_flow else {**rules, "flow": str(draft.id)},
                expires_at=draft.expires_at if is_flow else None,
                created_by=draft.created_by,
                correlation_id=draft.correlation_id,
            )
        )

    def _members(
        self,
        group: UUID,
        nodes: list[DraftNode],
        prefix: str,
        first: int,
        outer_needs: Mapping[UUID, EdgeCondition],
        outer: DraftNode | None,
    ) -> list[UUID]:
        """Add nodes as members of a group with their needs, and return the groups among them."""
        self.joins += group_joins(group, len(nodes))
        inside: list[UUID] = []
        for position, node in enumerate(nodes, start=first):
            shard = shard_of(position, len(nodes))
            starts = outer is not None and not node.needs
            ready = (
                replace(node, needs=dict(outer_needs), required=outer.required) if outer and starts else node
            )
            inside += self._node(ready, group, shard, prefix)
        return inside

    def _node(self, node: DraftNode, group: UUID, shard: int, prefix: str) -> list[UUID]:
        if node.flow is not None:
            return self.flow(node.flow, node.id, group, shard, f"{prefix}{node.name}/", node)
        if node.kind is NodeKind.JOB:
            self._job(node, node.jobs[0], group, shard, prefix, None)
            return []
        rules: dict[str, object] = {"inner": "map"}
        if node.needs and node.jobs:
            rules["starts"] = [str(node.jobs[0].id)]
        self._group(node.id, GroupKind.MAP, f"{prefix}{node.name}", group, shard, rules)
        self.joins += group_joins(node.id, len(node.jobs))
        for position, job in enumerate(node.jobs):
            place = None if node.grows else position
            self._job(node, job, node.id, shard_of(position, len(node.jobs)), prefix, place)
        return [node.id]

    def _job(
        self, node: DraftNode, job: NewJob, group: UUID, shard: int, prefix: str, position: int | None
    ) -> None:
        options = dict(job.details.options)
        if node.inputs:
            options[INPUTS] = sorted({str(reference.id) for reference in node.inputs})
        if node.when is not None:
            options[WHEN] = dict(node.when)
        if node.required is not None:
            options[REQUIRED] = node.required
        details = replace(
            job.details,
            options=options,
            correlation_id=job.details.correlation_id or self._draft.correlation_id,
            flow_id=self._draft.id,
            node=f"{prefix}{node.name}",
            position=position,
            group_id=group,
            group_shard=shard,
            may_fail=node.may_fail,
        )
        needs = list(node.needs.items())
        if needs and (job.run_at is not None or job.delay is not None):
            raise BadFlow(f"node {node.name!r} waits for other nodes; a delay or run_after cannot be kept")
        self.jobs.append(job._replace(details=details, unique=None, waiting=WAITS if needs else None))
        self._needs(job.id, needs, node.required, hold=self._holds and node.role is NodeRole.BODY)

    def _needs(
        self, id: UUID, needs: list[tuple[UUID, EdgeCondition]], required: int | None, *, hold: bool
    ) -> None:
        if not needs:
            return
        self.edges += [
            Edge(id, need, condition, edge_shard(place, len(needs), required=required))
            for place, (need, condition) in enumerate(needs)
        ]
        # A node for failures is skipped after a success, so only nodes that need successes are held.
        hold = hold and all(condition is EdgeCondition.SUCCESS for _, condition in needs)
        self.joins += job_joins(id, len(needs), required=required, hold=hold)

    def _late(self, group: UUID, nodes: list[DraftNode], counted: list[UUID], prefix: str) -> None:
        """Add the nodes that run at the first failure, and those that run at the end."""
        failure = [node for node in nodes if node.role is NodeRole.ON_FAILURE]
        final = [node for node in nodes if node.role is NodeRole.FINALLY]
        at_failure = dict.fromkeys(counted, EdgeCondition.FIRST_FAILURE)
        at_end = dict.fromkeys([counted[0], *(node.id for node in failure)], EdgeCondition.END)
        for place, node in enumerate((*failure, *final), start=1):
            needs = at_failure if node.role is NodeRole.ON_FAILURE else at_end
            required = 1 if node.role is NodeRole.ON_FAILURE else None
            ready = replace(node, needs={**needs, **node.needs} if node.role is NodeRole.FINALLY else needs)
            ready.required = required
            self._node(ready, group, shard_of(place, 1 + len(nodes)), prefix)
