"""The compilation of drafted flows, checked by a simulation of the counting that stores do."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.domain.cascade import Cascade
from tidemill.domain.flow_plan import (
    Draft,
    DraftNode,
    FailureMode,
    FlowPlan,
    NodeKind,
    NodeRole,
    plan,
    unique_name,
)
from tidemill.domain.graph import EdgeCondition, EndOutcome, Join, meets
from tidemill.domain.job import NewJob
from tidemill.domain.references import StoredReference
from tidemill.errors import BadFlow

IDS = count(1)


def new() -> UUID:
    return UUID(int=next(IDS) << 64)


def job() -> NewJob:
    return NewJob(new(), "work")


def node(
    name: str, *needs: DraftNode, on: EdgeCondition = EdgeCondition.SUCCESS, **more: object
) -> DraftNode:
    made = job()
    return DraftNode(
        made.id,
        name,
        jobs=[made],
        needs={need.id: on for need in needs},
        **more,  # type: ignore[arg-type]
    )


def mapped(name: str, width: int, *needs: DraftNode) -> DraftNode:
    return DraftNode(
        new(),
        name,
        NodeKind.MAP,
        [job() for _ in range(width)],
        {need.id: EdgeCondition.SUCCESS for need in needs},
    )


def draft(*nodes: DraftNode, **more: object) -> Draft:
    return Draft(new(), "default", "import", nodes=list(nodes), **more)  # type: ignore[arg-type]


class Simulation:
    """Counts ends as stores do: one row at a time, with the rules of ``domain/graph.py``."""

    def __init__(self, made: FlowPlan) -> None:
        self.made = made
        self.jobs = {item.id: item for item in made.jobs}
        self.groups = {group.id: group for group in made.groups}
        self.joins = {
            (row.id, row.shard): Join(
                row.id, row.shard, row.remaining, row.spare, 0, row.total, row.remaining
            )
            for row in made.joins
        }
        self.ends: dict[UUID, EndOutcome] = {}
        self.begun: list[UUID] = []
        self.ready = [item.id for item in made.jobs if item.waiting is None]
        self.unreachable: list[UUID] = []
        for group in made.groups:
            if self.joins[group.id, 0].remaining == 0:
                self._close(group.id)

    def run(self, fails: frozenset[UUID]) -> None:
        while self.ready or self.unreachable:
            if self.ready:
                id = self.ready.pop()
                assert id not in self.begun
                self.begun.append(id)
                self.end(id, EndOutcome.FAILURE if id in fails else EndOutcome.SUCCESS)
                continue
            cascade = Cascade(id for id in self.unreachable if id not in self.ends and id not in self.begun)
            self.unreachable = []
            layer = list(cascade.skipped)
            while layer:
                layer = cascade.spread(
                    [edge for edge in self.made.edges if edge.needs_id in layer],
                    self.joins.values(),
                )
            for id in cascade.skipped:
                if id not in self.ends:
                    self.end(id, EndOutcome.CANCEL)

    def end(self, id: UUID, outcome: EndOutcome) -> None:
        self.ends[id] = outcome
        if id in self.jobs:
            details = self.jobs[id].details
            member, fine = (details.group_id, details.group_shard or 0), details.may_fail
        else:
            member, fine = (self.groups[id].group_id, self.groups[id].group_shard), False
        if member[0] is not None:
            bad = outcome is EndOutcome.FAILURE and not fine
            if bad:
                for edge in self.made.edges:
                    if edge.needs_id == member[0] and edge.condition is EdgeCondition.FIRST_FAILURE:
                        self._count(edge.job_id, edge.shard, 1, 0, 0)
            self._count(member[0], member[1], 1, 0, int(bad))
        for edge in self.made.edges:
            if edge.needs_id == id:
                met = meets(edge.condition, outcome)
                self._count(edge.job_id, edge.shard, int(met), int(not met), 0)

    def _count(self, id: UUID, shard: int, good: int, broken: int, bad: int) -> None:
        row = self.joins[id, shard]
        now = row._replace(remaining=row.remaining - good, spare=row.spare - broken, bad=row.bad + bad)
        self.joins[id, shard] = now
        if now.spare < 0 <= row.spare and (shard or now.remaining > 0):
            self.unreachable.append(id)
        if now.remaining <= 0 < row.remaining:
            if shard:
                self._count(id, 0, 1, 0, now.bad)
            elif id in self.groups:
                self._close(id)
            else:
                self.ready.append(id)

    def _close(self, id: UUID) -> None:
        self.end(id, EndOutcome.FAILURE if self.joins[id, 0].bad else EndOutcome.SUCCESS)


def test_a_node_without_needs_is_ready_and_the_others_wait() -> None:
    first = node("fetch")
    second = node("parse", first)
    made = plan(draft(first, second))
    assert [item.waiting is not None for item in made.jobs] == [False, True]
    assert [item.tied for item in made.jobs] == [True, True]
    assert made.edges[0][:2] == (second.id, first.id)
    assert {item.details.flow_id for item in made.jobs} == {made.groups[0].id}


def test_a_wide_join_is_divided_into_shards() -> None:
    needs = [node(f"n{number}") for number in range(200)]
    last = node("last", *needs)
    made = plan(draft(*needs, last))
    rows = [row for row in made.joins if row.id == last.id]
    assert len(rows) == 26
    assert sum(row.remaining for row in rows if row.shard) == 200
    assert {edge.shard for edge in made.edges} == {row.shard for row in rows if row.shard}


def test_policies_become_two_numbers() -> None:
    needs = [node(f"n{number}") for number in range(3)]
    any_of = node("any", *needs, required=1)
    two = node("two", *needs, required=2)
    failure = node("failure", *needs, on=EdgeCondition.FAILURE, required=1)
    rows = {row.id: row for row in plan(draft(*needs, any_of, two, failure)).joins}
    assert (rows[any_of.id].remaining, rows[any_of.id].spare) == (1, 2)
    assert (rows[two.id].remaining, rows[two.id].spare) == (2, 1)
    assert (rows[failure.id].remaining, rows[failure.id].spare) == (1, 2)


def test_nodes_that_wait_for_each_other_are_refused_with_their_names() -> None:
    first, second = node("a"), node("b")
    first.needs[second.id] = second.needs[first.id] = EdgeCondition.SUCCESS
    with pytest.raises(BadFlow, match="a → b → a"):
        plan(draft(first, second))


def test_a_long_chain_needs_no_recursion() -> None:
    nodes = [node("n0")]
    for number in range(1, 5_000):
        nodes.append(node(f"n{number}", nodes[-1]))
    assert len(plan(draft(*nodes)).edges) == 4_999


def test_nodes_and_results_of_another_flow_are_refused() -> None:
    with pytest.raises(BadFlow, match="'b' waits for a node that is not in flow 'import'"):
        plan(draft(node("b", node("a"))))
    with pytest.raises(BadFlow, match="'b' takes the result of a node that is not in flow"):
        plan(draft(node("b", inputs=[StoredReference(new())])))
    with pytest.raises(BadFlow, match="returns the result of a node that is not in it"):
        plan(draft(node("a"), returns=StoredReference(new())))


def test_an_empty_flow_two_equal_names_and_an_impossible_policy_are_refused() -> None:
    with pytest.raises(BadFlow, match="has no nodes"):
        plan(draft())
    with pytest.raises(BadFlow, match="two nodes 'a'"):
        plan(draft(node("a"), node("a")))
    first = node("a")
    with pytest.raises(BadFlow, match="needs 2 of 1 nodes"):
        plan(draft(first, node("b", first, required=2)))


def test_a_node_cannot_wait_for_a_node_that_runs_at_the_end() -> None:
    last = node("cleanup", role=NodeRole.FINALLY)
    with pytest.raises(BadFlow, match="runs after all other nodes"):
        plan(draft(node("a", last), last))


def test_a_flow_that_holds_never_gives_up_on_a_waiting_node() -> None:
    first = node("a")
    second, other = node("b", first), node("c", first, on=EdgeCondition.FAILURE)
    rows = {row.id: row for row in plan(draft(first, second, other, on_failure=FailureMode.HOLD)).joins}
    assert rows[second.id].spare > 1_000_000
    assert rows[other.id].spare == 0


def test_names_are_made_unique_by_a_number() -> None:
    assert unique_name("load", ["load"]) == "load-2"
    assert unique_name("load", []) == "load"


def test_a_nested_flow_is_too_deep_at_nine_levels() -> None:
    inner = draft(node("a"))
    for _ in range(8):
        inner = draft(DraftNode(new(), "sub", NodeKind.INCLUDE, flow=inner))
    with pytest.raises(BadFlow, match="9 levels deep"):
        plan(inner)


def test_s8_failure_with_finally_and_on_failure_both() -> None:
    first = node("a")
    second = node("b", first)
    handler, last = node("page", role=NodeRole.ON_FAILURE), node("cleanup", role=NodeRole.FINALLY)
    made = plan(draft(first, second, handler, last))
    run = Simulation(made)
    run.run(frozenset({first.id}))
    assert run.ends[second.id] is EndOutcome.CANCEL
    assert run.begun == [first.id, handler.id, last.id]
    assert run.ends[made.groups[0].id] is EndOutcome.FAILURE
    run = Simulation(made)
    run.run(frozenset())
    assert run.begun == [first.id, second.id, last.id]
    assert run.ends[handler.id] is EndOutcome.CANCEL
    assert run.ends[made.groups[0].id] is EndOutcome.SUCCESS


def test_s12_a_map_over_an_empty_list_is_complete_and_the_next_node_runs() -> None:
    empty = mapped("load", 0)
    following = node("sum", empty)
    made = plan(draft(empty, following))
    run = Simulation(made)
    run.run(frozenset())
    assert run.begun == [following.id]
    assert run.ends[made.groups[0].id] is EndOutcome.SUCCESS


def test_s13_a_sub_flow_in_a_sub_flow_whose_last_member_fails() -> None:
    load = mapped("load", 3)
    inner = draft(load)
    middle = draft(DraftNode(new(), "inner", NodeKind.INCLUDE, flow=inner))
    outer = DraftNode(new(), "middle", NodeKind.INCLUDE, flow=middle)
    following = node("after", outer)
    made = plan(draft(outer, following))
    run = Simulation(made)
    run.run(frozenset({load.jobs[-1].id}))
    assert run.ends[following.id] is EndOutcome.CANCEL
    assert run.ends[made.groups[0].id] is EndOutcome.FAILURE
    assert {item.details.node for item in made.jobs} == {"middle/inner/load", "after"}


@st.composite
def drafts(draw: st.DrawFn, depth: int = 0) -> Draft:
    nodes: list[DraftNode] = []
    for number in range(draw(st.integers(1, 6))):
        needs = {
            need.id: draw(
                st.sampled_from([EdgeCondition.SUCCESS] * 3 + [EdgeCondition.FAILURE, EdgeCondition.END])
            )
            for need in nodes
            if draw(st.booleans())
        }
        kind = draw(st.sampled_from([NodeKind.JOB] * 3 + [NodeKind.MAP] + [NodeKind.INCLUDE] * (depth < 2)))
        if kind is NodeKind.INCLUDE:
            made = DraftNode(new(), f"n{number}", kind, flow=draw(drafts(depth + 1)))
        elif kind is NodeKind.MAP:
            made = mapped(f"n{number}", draw(st.sampled_from([0, 1, 3, 70])))
        else:
            made = node(f"n{number}", may_fail=draw(st.booleans()))
        made.needs = needs
        made.required = draw(st.sampled_from([None, 1])) if needs else None
        nodes.append(made)
    if draw(st.booleans()):
        nodes.append(node("page", role=NodeRole.ON_FAILURE))
    if draw(st.booleans()):
        nodes.append(node("cleanup", role=NodeRole.FINALLY))
    return draft(*nodes)


@settings(max_examples=200, deadline=None)
@given(drafts(), st.randoms(use_true_random=False))
def test_every_node_of_every_flow_ends_once(made: Draft, random: object) -> None:
    rows = plan(made)
    run = Simulation(rows)
    run.run(frozenset(item.id for item in rows.jobs if random.random() < 0.3))  # type: ignore[attr-defined]
    assert set(run.ends) == {item.id for item in rows.jobs} | {group.id for group in rows.groups}
    members = defaultdict(list)
    for item in rows.jobs:
        members[item.details.group_id].append(item)
    failed = any(run.ends[item.id] is EndOutcome.FAILURE and not item.details.may_fail for item in rows.jobs)
    assert run.ends[rows.groups[0].id] is (EndOutcome.FAILURE if failed else EndOutcome.SUCCESS)
