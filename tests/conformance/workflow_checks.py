"""The observed state of the workflow machine, and the checks of the invariants F1 to F15.

The checks share no code with the stores: they know edges, policies and observed ends only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar
from uuid import UUID

from tidemill.client.flows.why import flow_reasons
from tidemill.clock import ManualClock
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.flow_states import SKIPPED, node_label
from tidemill.domain.graph import (
    EdgeCondition,
)
from tidemill.domain.job import Claim, JobRow
from tidemill.domain.states import ENDED, JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import ENDS, FAILED, T0

T = TypeVar("T")
S, C = JobState, EdgeCondition
TENANTS = ("default", "other")
GOOD, BAD, GONE = COMPLETED, FAILED, ENDS[S.CANCELLED]
_LEASE = timedelta(days=365)
_BAD = frozenset({S.FAILED, S.TIMED_OUT, S.DEAD_LETTERED})


@dataclass
class Node:
    """A job, and what its edges say. ``rounds`` counts how often it may begin."""

    id: UUID
    tenant: str
    needs: dict[UUID, EdgeCondition] = field(default_factory=dict)
    required: int = 0
    group: UUID | None = None
    flow: UUID | None = None
    rounds: int = 1
    begun: int = 0


@dataclass
class Group:
    """A flow or a batch."""

    id: UUID
    tenant: str
    members: list[UUID]
    held: bool = False


@dataclass
class Saga:
    """A durable function and its compensations, in the order of its steps."""

    id: UUID
    undos: list[UUID] = field(default_factory=list)


class Observed:
    """Two stores, the acts on them, and their observed state."""

    def __init__(self, store: Store, oracle: Store | None, worker: UUID) -> None:
        self.stores = [store] if oracle is None else [store, oracle]
        self.clock, self.worker = ManualClock(T0), worker
        self.nodes: dict[UUID, Node] = {}
        self.groups: dict[UUID, Group] = {}
        self.sagas: list[Saga] = []
        self.held: dict[UUID, Claim] = {}
        self.former: list[Claim] = []
        self.rows: dict[UUID, JobRow] = {}
        self.results: dict[UUID, str | None] = {}
        self.never: set[UUID] = set()  #: jobs of finishes that were refused, failed or rolled back
        self.order: list[UUID] = []  #: the jobs that began, in order
        self.ended_at: dict[UUID, int] = {}  #: the length of ``order`` when a job was last seen to end
        self.taken = Counter[str]()

    def both(self, ask: Callable[[Store], T], shape: Callable[[T], object] = lambda answer: answer) -> T:
        """Ask both stores, which must answer the same."""
        answers = [ask(store) for store in self.stores]
        shown = [shape(answer) for answer in answers]
        assert shown[0] == shown[-1]
        return answers[0]

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def look(self) -> None:
        ids = [*self.nodes, *self.never]
        rows = self.both(lambda store: store.get(ids, tenant=ALL_TENANTS), _shown)
        before = self.rows
        self.rows = {row.id: row for row in rows}
        for id, row in self.rows.items():
            if row.state in ENDED and (id not in before or before[id].state not in ENDED):
                self.ended_at[id] = len(self.order)

    def state(self, id: UUID) -> JobState:
        """The observed state of a job; a group has none."""
        return self.rows[id].state

    def ends(self, node: Node) -> tuple[int, int]:
        """How many needs of a node count, and how many broke their edge."""
        good = broken = 0
        for need, on in node.needs.items():
            if need in self.groups:
                met, over = self._group_end(self.groups[need], on)
            else:
                over = self.state(need) in ENDED
                met = over and _met(on, self.state(need))
            good, broken = good + met, broken + (over and not met)
        return good, broken

    def _group_end(self, group: Group, on: EdgeCondition) -> tuple[bool, bool]:
        state = self.group_state(group)
        if on is C.FIRST_FAILURE:
            failed = any(self.state(id) in _BAD for id in group.members)
            return failed, failed or state != "running"
        return (on is C.END or state == "completed") and state != "running", state != "running"

    def group_state(self, group: Group) -> str:
        """F4: a group ends if all members have, and failed if one of them did."""
        if group.held or any(self.state(id) not in ENDED for id in group.members):
            return "running"
        return "failed" if any(self.state(id) in _BAD for id in group.members) else "completed"

    # Checks --------------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The invariants that hold after each act."""
        assert not self.never & self.rows.keys(), "F8, F9"
        unreachable = {row.job_id for row in self.both(lambda store: store.unreachable(1000), _noted)}
        for node in self.nodes.values():
            if self.state(node.id) is not S.WAITING:
                continue
            good, broken = self.ends(node)
            if not self._reopened(node):
                assert good < node.required, "F2"
                assert (node.id in unreachable) == (broken > len(node.needs) - node.required), "F2"
        ids = [*self.groups]
        counts = {row.id: row for row in self.both(lambda store: store.group_counts(ids))}
        flows = self.both(
            lambda store: store.flow(ids, tenant=ALL_TENANTS), lambda rows: [row.state for row in rows]
        )
        for row in flows:
            group = self.groups[row.id]
            remaining = sum(self.state(id) not in ENDED for id in group.members)
            assert counts[row.id][1:3] == (len(group.members), remaining), "F3"
            assert row.state.value == self.group_state(group), "F4"

    def _reopened(self, node: Node) -> bool:
        """Whether the callback of a flow that was reopened: it has counted the first end or failure, once."""
        return any(need in self.groups for need in node.needs)

    def explain(self) -> None:
        """F15: every waiting job has a reason."""
        for row in self.rows.values():
            if row.state is S.WAITING:
                reasons = self.both(partial(_reasons, row, self.now))
                assert reasons, "F15"

    def _check_callbacks(self) -> None:
        """F11: each callback ran once, or never if its condition did not come about."""
        for node in self.nodes.values():
            for need, on in node.needs.items():
                if need in self.groups:
                    assert node.begun <= node.rounds, "F11"
                    if on is C.END:
                        assert node.begun, "F11"

    def _check_sagas(self) -> None:
        """F10: compensations ran if and only if the saga ended badly, that of the last step first."""
        for saga in self.sagas:
            ran = [id for id in saga.undos if node_label(self.rows[id]) != SKIPPED]
            assert ran == ([] if self.state(saga.id) is S.COMPLETED else saga.undos), "F10"
            first = [self.order.index(id) for id in ran]
            assert first == sorted(first, reverse=True), "F10"
            for earlier, later in pairwise(ran):
                assert self.ended_at[later] <= self.order.index(earlier), "F10"

    def _check_edges(self) -> None:
        """F13: both ends of every edge belong to one tenant."""
        tenants = {id: node.tenant for id, node in self.nodes.items()}
        tenants |= {id: group.tenant for id, group in self.groups.items()}
        for edge in self.both(lambda store: store.edges_of([*self.nodes])):
            assert tenants[edge.job_id] == tenants[edge.needs_id], "F13"


def _met(on: EdgeCondition, end: JobState) -> bool:
    return {
        C.SUCCESS: end is S.COMPLETED,
        C.FAILURE: end in _BAD,
        C.NOT_SUCCESS: end is not S.COMPLETED,
        C.END: True,
    }[on]


def _shown(rows: Sequence[JobRow]) -> object:
    return sorted((str(row.id), row.state, row.result, row.attempt, row.reason) for row in rows)


def _noted(rows: Sequence[Any]) -> object:
    return sorted((str(row.job_id), row.reason) for row in rows)


def _reasons(row: JobRow, now: datetime, store: Store) -> list[tuple[str, str]]:
    return list(flow_reasons(store, row, now))
