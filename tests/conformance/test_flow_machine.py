"""Random flows on every store, compared with a pure oracle after each step.

The oracle knows only edges, policies and ends. It shares no code with the stores, except the names of conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import Edge, EdgeCondition, GroupKind, NewGroup, NewJoin, job_joins
from tidemill.domain.job import Details, Finish, Move, NewJob
from tidemill.domain.states import ENDED, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store
from tidemill.testing.conformance.kit import AGAIN, FAILED, T0, claim_all

S, C = JobState, EdgeCondition
CONDITIONS = [C.SUCCESS, C.FAILURE, C.NOT_SUCCESS, C.END]
SEQUENCES = 300


@dataclass
class Node:
    """A node of the oracle."""

    needs: dict[int, EdgeCondition]
    required: int
    shards: bool
    state: str = "waiting"
    begun: int = 0
    released: int = 0


@dataclass
class Plan:
    """A random graph, and random ends of its nodes."""

    nodes: list[Node]
    acts: list[tuple[int, str, bool]] = field(default_factory=list)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a graph of at most seven nodes without cycles, and what happens to them."""
    count = draw(st.integers(1, 7))
    nodes = []
    for place in range(count):
        needs = draw(st.sets(st.integers(0, place - 1), max_size=4)) if place else set()
        edges = {need: draw(st.sampled_from(CONDITIONS)) for need in sorted(needs)}
        every = draw(st.booleans())
        required = len(edges) if every or not edges else draw(st.integers(1, len(edges)))
        nodes.append(Node(edges, required, every and draw(st.booleans())))
    kinds = st.sampled_from(["complete", "complete", "fail", "cancel", "again", "retry"])
    acts = draw(st.lists(st.tuples(st.integers(0, count - 1), kinds, st.booleans()), max_size=20))
    return Plan(nodes, acts)


def met(condition: EdgeCondition, end: str) -> bool:
    """Whether an end counts, by the definition of the condition."""
    return {
        C.SUCCESS: end == "completed",
        C.FAILURE: end == "failed",
        C.NOT_SUCCESS: end != "completed",
        C.END: True,
    }[condition]


class Oracle:
    """The states that the nodes must have."""

    def __init__(self, plan: Plan) -> None:
        self.nodes = plan.nodes
        for node in self.nodes:
            node.state = "waiting" if node.needs else "pending"

    def ends(self, place: int) -> tuple[int, int]:
        """How many needs have counted, and how many missed their condition."""
        good = broken = 0
        for need, condition in self.nodes[place].needs.items():
            end = self.nodes[need].state
            if end in ("completed", "failed", "cancelled"):
                good, broken = good + met(condition, end), broken + (not met(condition, end))
        return good, broken

    def settle(self, before: list[bool]) -> None:
        """Release the waiting nodes whose policy has just been met."""
        for place, node in enumerate(self.nodes):
            full = self.full(place)
            if node.state == "waiting" and full and not before[place]:
                node.state = "pending"

    def full(self, place: int) -> bool:
        return self.ends(place)[0] >= self.nodes[place].required

    def fills(self) -> list[bool]:
        return [self.full(place) for place in range(len(self.nodes))]

    def unreachable(self) -> set[int]:
        """The waiting nodes that can no longer start."""
        return {
            place
            for place, node in enumerate(self.nodes)
            if node.state == "waiting" and self.ends(place)[1] > len(node.needs) - node.required
        }

    def flow(self) -> str:
        states = [node.state for node in self.nodes]
        if any(state in ("waiting", "pending") for state in states):
            return "running"
        return "failed" if "failed" in states else "completed"


def shards_of(node: Node, id: UUID) -> tuple[list[NewJoin], dict[int, int]]:
    """The join of a node, and the shard of each need: one row, or two shards and row 0."""
    if not node.shards or len(node.needs) < 2:
        return job_joins(id, len(node.needs), required=node.required), dict.fromkeys(node.needs, 0)
    shards = {need: 1 + place % 2 for place, need in enumerate(node.needs)}
    sizes = [list(shards.values()).count(shard) for shard in (1, 2)]
    rows = [NewJoin(id, shard, size, 0, size) for shard, size in zip((1, 2), sizes, strict=True)]
    return [NewJoin(id, 0, 2, 0, 0), *rows], shards


def start(store: Store, plan: Plan) -> tuple[list[UUID], UUID]:
    """Start the flow of a plan."""
    ids, flow = [new_id() for _ in plan.nodes], new_id()
    jobs, edges, joins = [], [], [NewJoin(flow, 0, len(ids), 2**31 - 1, len(ids))]
    for id, node in zip(ids, plan.nodes, strict=True):
        details = Details(flow_id=flow, group_id=flow, group_shard=0, node=str(id))
        jobs.append(NewJob(id, "work", details=details, waiting="needs" if node.needs else None))
        if node.needs:
            rows, shards = shards_of(node, id)
            joins += rows
            edges += [Edge(id, ids[need], condition, shards[need]) for need, condition in node.needs.items()]
    store.start_flow([NewGroup(flow, "default", GroupKind.FLOW, "f")], jobs, edges, joins, now=T0)
    return ids, flow


def act(store: Store, oracle: Oracle, ids: list[UUID], place: int, kind: str, hint: bool) -> bool:
    """Let one thing happen to a node, on both sides. Returns False if its state does not allow that."""
    node, id = oracle.nodes[place], ids[place]
    before = oracle.fills()
    if kind == "retry" and node.state in ("failed", "cancelled"):
        target, expect = S.PENDING, ENDED - {S.COMPLETED}
        assert store.move([Move(id, "default", frozenset(expect), target, restart=True)], now=T0) == {id}
        node.state = "pending"
    elif kind == "cancel" and node.state in ("waiting", "pending"):
        move = Move(id, "default", frozenset({S.PENDING, S.WAITING}), S.CANCELLED)
        assert store.move([move], now=T0) == {id}
        node.state = "cancelled"
    elif kind in ("complete", "fail", "again") and node.state == "pending":
        way, state = {
            "complete": (COMPLETED, "completed"),
            "fail": (FAILED, "failed"),
            "again": (AGAIN, "pending"),
        }[kind]
        claims = claim_all(store, now=T0)
        mine = [Finish(claim, way, tied=hint) for claim in claims if claim.id == id]
        others = [Finish(claim, AGAIN) for claim in claims if claim.id != id]
        assert len(mine) == 1
        assert store.finish([*others, *mine], now=T0) == frozenset()
        node.state = state
    else:
        return False
    oracle.settle(before)
    return True


def play(store: Store, plan: Plan) -> None:
    """Run a plan on a store and compare it with the oracle after each step."""
    oracle = Oracle(plan)
    ids, flow = start(store, plan)
    compare(store, oracle, ids, flow)
    for place, kind, hint in plan.acts:
        if act(store, oracle, ids, place, kind, hint):
            compare(store, oracle, ids, flow)
    assert store.recount_joins(now=T0).repaired == frozenset()
    clear(store, ids, flow)


def clear(store: Store, ids: list[UUID], flow: UUID) -> None:
    """Remove the flow, so that the next one finds the same small tables."""
    unended = frozenset({S.PENDING, S.WAITING})
    store.move([Move(id, "default", unended, S.CANCELLED) for id in ids], now=T0)
    assert store.forget(store.flow_documents(flow, policy="p", tier="archive")) == set(ids)
    assert store.drop_flows([flow]) == {flow}


def compare(store: Store, oracle: Oracle, ids: list[UUID], flow: UUID) -> None:
    """Every node, the notes of unreachable ones, the counts and the flow are as the oracle says."""
    jobs = {job.id: job.state.value for job in store.get(ids, tenant=ALL_TENANTS)}
    assert [jobs[id] for id in ids] == [node.state for node in oracle.nodes]
    noted = {row.job_id for row in store.unreachable(1000)} & set(ids)
    assert noted == {ids[place] for place in oracle.unreachable()}
    (counts,) = store.group_counts([flow])
    open_nodes = sum(node.state in ("waiting", "pending") for node in oracle.nodes)
    assert (counts.total, counts.remaining) == (len(ids), open_nodes)
    (row,) = store.flow([flow], tenant=ALL_TENANTS)
    assert row.state.value == oracle.flow()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "memory":
        opened: Store = MemoryStore()
    elif request.param == "sqlite":
        path = request.getfixturevalue("tmp_path")
        opened = open_store(f"sqlite:///{path}/jobs.db?synchronous=normal")
        opened.migrate()
    else:
        opened = open_store(request.getfixturevalue("migrated_postgres_url"))
    yield opened
    opened.close()


@settings(
    max_examples=SEQUENCES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(plan=plans())
def test_random_flows_run_as_their_policies_say(store: Store, plan: Plan) -> None:
    play(store, plan)
