"""Tests of the invariants of flows with handmade evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.domain.strategies import a_job
from tests.faults.flow_invariants import FLOW_INVARIANTS, FlowEvidence, judge_flows
from tests.faults.flow_tasks import PREFIX, Effect
from tests.faults.scenario import NOON

from tidemill.domain.archived_flows import FlowParts
from tidemill.domain.flow_states import SKIP_REASON
from tidemill.domain.graph import Edge, FlowRow, FlowState, GroupCounts, GroupKind
from tidemill.domain.job import Details
from tidemill.domain.states import JobState

_S = JobState


class World:
    """The evidence of a correct run with one flow of each kind. Each node takes one second."""

    def __init__(self) -> None:
        self._ids = (UUID(int=number) for number in count(1))
        self.edges: list[Edge] = []  # of compensations, which the store returns
        self.unreachable: list[Any] = []
        self.mailbox: dict[UUID, list[str]] = {}
        self.load = SimpleNamespace(sent={}, escaped=[], refused=1, explained=1, unexplained=[])
        store = SimpleNamespace(
            unreachable=lambda _limit: self.unreachable,
            signals=lambda id, tenant: [SimpleNamespace(payload=text) for text in self.mailbox.get(id, [])],
            edges_of=lambda ids: [edge for edge in self.edges if {edge.job_id, edge.needs_id} & set(ids)],
        )
        self.evidence = FlowEvidence(cast("Any", store), cast("Any", self.load))
        self.diamond()
        self.map()
        self.growing = self.flow("growing", "2:a", [self.node("plan"), *map(self.node, ("x", "y", "end"))])
        self.gate = self.flow("gates", "gate", [self.node(name) for name in ("a", "gate", "b")])
        self.saga()
        self.batch()
        self.durable()

    def job(self, task: str, *, state: JobState = _S.COMPLETED, at: float = 0.0, **fields: Any) -> UUID:
        """Add a job that begins at this second and ends one second later."""
        id = next(self._ids)
        details = Details(**{name: fields.pop(name) for name in DETAILS & fields.keys()})
        given = {"tenant": "default", "result": "1", "reason": None, "archived_at": None} | fields
        self.evidence.jobs[id] = a_job(
            id=id, task=f"{PREFIX}{task}", state=state, details=details, finished_at=NOON, **given
        )
        if state is _S.COMPLETED:
            self.effect("B", id, at)
            self.effect("E", id, at + 1)
        return id

    def effect(self, kind: str, id: UUID, at: float, name: str = "", token: int = 1) -> None:
        kinds = {"B": self.evidence.begun, "E": self.evidence.ends, "S": self.evidence.steps}
        kinds[kind][id].append(Effect(kind, id, token, name, at))

    def node(self, name: str, at: float = 0.0, **fields: Any) -> UUID:
        return self.job("work", at=at, node=name, **fields)

    def flow(self, name: str, key: str, jobs: list[UUID], needs: Iterable[tuple[UUID, UUID]] = ()) -> UUID:
        id = next(self._ids)
        kind = GroupKind.BATCH if name == "batches" else GroupKind.FLOW
        self.evidence.flows[id] = FlowRow(
            id, "default", kind, f"{PREFIX}{name}", key, FlowState.COMPLETED, NOON
        )
        for job in jobs:
            if self.evidence.jobs[job].task != f"{PREFIX}callback":
                self.detail(job, group_id=id, flow_id=id)
        members = sum(self.evidence.jobs[job].details.group_id == id for job in jobs)
        edges = tuple(Edge(job, needed) for job, needed in needs)
        self.evidence.parts[id] = FlowParts(tuple(jobs), edges, (), (GroupCounts(id, members, 0, 0),))
        return id

    def change(self, id: UUID, **fields: Any) -> None:
        self.evidence.jobs[id] = replace(self.evidence.jobs[id], **fields)

    def detail(self, id: UUID, **fields: Any) -> None:
        self.change(id, details=replace(self.evidence.jobs[id].details, **fields))

    def skip(self, id: UUID) -> None:
        self.change(id, state=_S.CANCELLED, reason=SKIP_REASON, result=None)
        self.evidence.begun[id].clear()
        self.evidence.ends[id].clear()

    def diamond(self) -> None:
        self.top, self.left, self.right = self.node("top"), self.node("left", 1), self.node("right", 1)
        self.sum = self.node("sum", 2, result="5")
        needs = [(self.left, self.top), (self.right, self.top), (self.sum, self.left), (self.sum, self.right)]
        self.diamonds = self.flow("diamonds", "d", [self.top, self.left, self.right, self.sum], needs)

    def map(self) -> None:
        self.parts = [self.node("parts", position=number) for number in range(3)]
        self.total = self.node("sum", 1, result="3")
        self.maps = self.flow("maps", "3:a", [*self.parts, self.total])

    def saga(self) -> None:
        self.story = self.job("saga", state=_S.FAILED, result=None)
        self.undo_first, self.undo_last = self.job("revert", at=3), self.job("revert", at=2)
        self.edges = [Edge(undo, self.story) for undo in (self.undo_first, self.undo_last)]
        self.edges.append(Edge(self.undo_first, self.undo_last))

    def batch(self) -> None:
        members = [self.job("member"), self.job("member", at=1)]
        self.callback = self.job("callback", at=2)
        self.batches = self.flow("batches", "b", [*members, self.callback])

    def durable(self) -> None:
        self.function = self.job("durable", result='{"first": 1, "last": 2, "message": 7}')
        self.children = [self.job("child", parent_id=self.function) for _ in range(3)]
        self.effect("S", self.function, 0, "first", token=1)
        self.effect("S", self.function, 1, "last", token=2)
        self.load.sent[self.function] = {"one": 7, "two": 8}
        self.mailbox[self.function] = ["8"]

    def broken(self) -> set[str]:
        """The names of the violated invariants."""
        return {name for name, finding in judge_flows(self.evidence).items() if finding.broken}


DETAILS = frozenset(Details.__dataclass_fields__)


@pytest.fixture
def world() -> World:
    return World()


def test_a_correct_run_breaks_no_invariant_of_flows(world: World) -> None:
    assert world.broken() == set()


def test_every_invariant_of_flows_counts_what_it_checked(world: World) -> None:
    findings = judge_flows(world.evidence)
    assert list(findings) == list(FLOW_INVARIANTS)
    assert [name for name, finding in findings.items() if not finding.checked] == []


# Violations --------------------------------------------------------------------------------------------------------------


def begin_before_a_need_ends(world: World) -> None:
    world.evidence.begun[world.sum].clear()
    world.effect("B", world.sum, 1.5)


def skip_a_node_whose_needs_completed(world: World) -> None:
    world.skip(world.sum)


def leave_a_node_open(world: World) -> None:
    world.change(world.left, state=_S.WAITING)
    world.evidence.parts[world.diamonds] = replace(
        world.evidence.parts[world.diamonds], edges=(Edge(world.left, world.top),)
    )


def leave_a_note_of_an_unreachable_job(world: World) -> None:
    world.unreachable.append(SimpleNamespace(job_id=world.sum))


def count_a_member_too_many(world: World) -> None:
    counts = (GroupCounts(world.maps, 5, 0, 0),)
    world.evidence.parts[world.maps] = replace(world.evidence.parts[world.maps], counts=counts)


def leave_an_end_uncounted(world: World) -> None:
    counts = (GroupCounts(world.maps, 4, 1, 0),)
    world.evidence.parts[world.maps] = replace(world.evidence.parts[world.maps], counts=counts)


def end_a_flow_in_the_wrong_state(world: World) -> None:
    world.evidence.flows[world.gate] = replace(world.evidence.flows[world.gate], state=FlowState.FAILED)


def end_a_flow_twice(world: World) -> None:
    world.evidence.flows[world.gate] = replace(world.evidence.flows[world.gate], round=2)


def hand_over_a_wrong_result(world: World) -> None:
    world.change(world.sum, result="4")


def hand_over_the_result_of_a_failed_part(world: World) -> None:
    world.change(world.parts[2], state=_S.FAILED)
    world.detail(world.parts[2], may_fail=True)


def repeat_a_recorded_step(world: World) -> None:
    world.effect("S", world.function, 2, "first", token=2)


def complete_without_a_step(world: World) -> None:
    world.evidence.steps[world.function].pop()


def take_a_signal_that_nobody_sent(world: World) -> None:
    world.change(world.function, result='{"first": 1, "last": 2, "message": 9}')


def take_a_signal_and_leave_it(world: World) -> None:
    world.mailbox[world.function].append("7")


def lose_a_child(world: World) -> None:
    del world.evidence.jobs[world.children[0]]


def create_a_child_twice(world: World) -> None:
    world.job("child", parent_id=world.function)


def lose_an_added_node(world: World) -> None:
    parts = world.evidence.parts[world.growing]
    kept = parts.jobs[:-1]
    world.evidence.parts[world.growing] = FlowParts(kept, counts=(GroupCounts(world.growing, 3, 0, 0),))
    del world.evidence.jobs[parts.jobs[-1]]


def undo_a_completed_saga(world: World) -> None:
    world.change(world.story, state=_S.COMPLETED)


def leave_a_step_of_a_failed_saga(world: World) -> None:
    world.skip(world.undo_last)


def undo_the_first_step_first(world: World) -> None:
    world.evidence.begun[world.undo_first].clear()
    world.effect("B", world.undo_first, 1.5)


def skip_a_callback(world: World) -> None:
    world.skip(world.callback)


def call_back_before_the_last_member_ends(world: World) -> None:
    world.evidence.begun[world.callback].clear()
    world.effect("B", world.callback, 1.5)


def delete_a_job_of_a_live_flow(world: World) -> None:
    world.load.escaped.append("job 1 could be deleted")


def lose_a_node_of_a_flow(world: World) -> None:
    parts = world.evidence.parts[world.gate]
    world.evidence.parts[world.gate] = FlowParts(parts.jobs[:-1], counts=(GroupCounts(world.gate, 2, 0, 0),))


def connect_two_tenants(world: World) -> None:
    world.change(world.top, tenant="other")


def repair_a_join(world: World) -> None:
    world.evidence.logs = "WARNING tidemill.engine 1 joins whose counts were wrong\n"


def leave_a_wrong_join(world: World) -> None:
    world.evidence.repaired = 1


def wait_without_a_reason(world: World) -> None:
    world.load.unexplained.append("job 1 waits")


VIOLATIONS: list[tuple[str, Callable[[World], None]]] = [
    ("F1", begin_before_a_need_ends),
    ("F2", skip_a_node_whose_needs_completed),
    ("F2", leave_a_node_open),
    ("F2", leave_a_note_of_an_unreachable_job),
    ("F3", count_a_member_too_many),
    ("F3", leave_an_end_uncounted),
    ("F4", end_a_flow_in_the_wrong_state),
    ("F4", end_a_flow_twice),
    ("F5", hand_over_a_wrong_result),
    ("F5", hand_over_the_result_of_a_failed_part),
    ("F6", repeat_a_recorded_step),
    ("F6", complete_without_a_step),
    ("F7", take_a_signal_that_nobody_sent),
    ("F7", take_a_signal_and_leave_it),
    ("F8", lose_a_child),
    ("F8", create_a_child_twice),
    ("F9", lose_an_added_node),
    ("F10", undo_a_completed_saga),
    ("F10", leave_a_step_of_a_failed_saga),
    ("F10", undo_the_first_step_first),
    ("F11", skip_a_callback),
    ("F11", call_back_before_the_last_member_ends),
    ("F12", delete_a_job_of_a_live_flow),
    ("F12", lose_a_node_of_a_flow),
    ("F13", connect_two_tenants),
    ("F14", repair_a_join),
    ("F14", leave_a_wrong_join),
    ("F15", wait_without_a_reason),
]


@pytest.mark.parametrize(("name", "violate"), VIOLATIONS, ids=[violate.__name__ for _, violate in VIOLATIONS])
def test_a_broken_invariant_of_flows_is_detected(
    world: World, name: str, violate: Callable[[World], None]
) -> None:
    violate(world)
    assert world.broken() == {name}


def test_every_invariant_of_flows_has_a_violation() -> None:
    assert {name for name, _ in VIOLATIONS} == set(FLOW_INVARIANTS)
