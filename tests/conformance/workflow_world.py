"""The acts of the workflow machine: flows, batches and sagas on a store, and the same ones on its oracle.

Every verb is called on both stores at the same instant, and the answers must be equal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

import pytest
from tests.conformance.workflow_checks import Group, Node, Observed, Saga

from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.graph import (
    Additions,
    Edge,
    EdgeCondition,
    GroupKind,
    NewGroup,
    NewJoin,
    group_joins,
    grown_joins,
    grown_shard,
    job_joins,
)
from tidemill.domain.job import Claim, Details, Finish, Move, NewJob, Transition
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.references import INPUTS
from tidemill.domain.signals import NewSignal, Posted
from tidemill.domain.states import ENDED, JobState
from tidemill.domain.steps import note_record
from tidemill.engine.compensation import UNDO, UndoPlan, write_undo
from tidemill.engine.duties.cascade import CascadeDuty
from tidemill.errors import Cancel, JobNotFound
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import AGAIN, ENDS, FAILED, T0

T = TypeVar("T")
S, C = JobState, EdgeCondition
TENANTS = ("default", "other")
GOOD, BAD, GONE = COMPLETED, FAILED, ENDS[S.CANCELLED]
_LEASE = timedelta(days=365)
_BAD = frozenset({S.FAILED, S.TIMED_OUT, S.DEAD_LETTERED})


class Act(NamedTuple):
    """One drawn act; its numbers are taken modulo the number of choices."""

    kind: str
    one: int
    two: int


class _Undone(Exception):
    """Ends a transaction without its commit."""


class World(Observed):
    """Two stores, and the acts on them."""

    # Building ------------------------------------------------------------------------------------------------------------

    def build_flow(self, tenant: str, plan: Sequence[tuple[dict[int, EdgeCondition], int]]) -> None:
        """Start a flow with these nodes, one callback for its end and one for its first failure."""
        flow, ids = new_id(), [new_id() for _ in plan]
        jobs, edges, joins = [], [], group_joins(flow, len(ids))
        for id, (needs, required) in zip(ids, plan, strict=True):
            node = self._node(id, tenant, {ids[need]: on for need, on in needs.items()}, required, flow, flow)
            jobs.append(self._job(node, flow_id=flow, group_id=flow, group_shard=0))
            edges += [Edge(id, need, on) for need, on in node.needs.items()]
            joins += job_joins(id, len(needs), required=required) if needs else []
        callbacks = [
            self._node(new_id(), tenant, {flow: on}, 1, None, flow) for on in (C.END, C.FIRST_FAILURE)
        ]
        jobs += [self._job(node, flow_id=flow) for node in callbacks]
        edges += [Edge(node.id, flow, on) for node in callbacks for on in node.needs.values()]
        joins += [row for node in callbacks for row in job_joins(node.id, 1)]
        self.groups[flow] = Group(flow, tenant, ids)
        group = NewGroup(flow, tenant, GroupKind.FLOW, "f")
        self.both(lambda store: store.start_flow([group], jobs, edges, joins, now=self.now))

    def build_batch(self, tenant: str, members: int) -> None:
        """Start an open batch with its three callbacks."""
        batch, ids = new_id(), [new_id() for _ in range(members)]
        nodes = [self._node(id, tenant, {}, 0, batch, None) for id in ids]
        conditions = (C.END, C.SUCCESS, C.FIRST_FAILURE)
        callbacks = [self._node(new_id(), tenant, {batch: on}, 1, None, None) for on in conditions]
        jobs = [self._job(node, group_id=batch, group_shard=0) for node in nodes]
        jobs += [self._job(node) for node in callbacks]
        edges = [Edge(node.id, batch, on) for node in callbacks for on in node.needs.values()]
        joins = [*group_joins(batch, members, held=1)]
        joins += [row for node in callbacks for row in job_joins(node.id, 1)]
        self.groups[batch] = Group(batch, tenant, ids, held=True)
        group = NewGroup(batch, tenant, GroupKind.BATCH, "b", held=1)
        self.both(lambda store: store.start_flow([group], jobs, edges, joins, now=self.now))

    def build_saga(self, tenant: str) -> None:
        """Enqueue a job whose steps will have compensations."""
        node = self._node(new_id(), tenant, {}, 0, None, None)
        self.sagas.append(Saga(node.id))
        job = self._job(node)
        self.both(lambda store: store.enqueue([job], now=self.now))

    def _node(
        self,
        id: UUID,
        tenant: str,
        needs: dict[UUID, EdgeCondition],
        required: int,
        group: UUID | None,
        flow: UUID | None,
    ) -> Node:
        self.nodes[id] = Node(id, tenant, needs, required, group, flow)
        return self.nodes[id]

    def _job(self, node: Node, **details: Any) -> NewJob:
        inputs = [str(need) for need in node.needs if need in self.nodes]
        about = Details(node="n", options={INPUTS: inputs} if inputs else {}, **details)
        waiting = "needs" if node.needs else None
        return NewJob(node.id, "work", tenant=node.tenant, waiting=waiting, details=about)

    # Acts ----------------------------------------------------------------------------------------------------------------

    def act(self, act: Act) -> None:
        """Do one thing, take what became ready, and check everything."""
        self.clock.advance(timedelta(milliseconds=1))
        if getattr(self, act.kind)(act.one, act.two) is not False:
            self.taken[act.kind] += 1
            self.settle()

    def settle(self) -> None:
        """Claim what is ready, and check the invariants."""
        self.look()
        self.claim()
        self.check()

    def claim(self) -> None:
        lanes = [Lane("default", tenant, 0) for tenant in TENANTS]
        request = ClaimRequest(self.worker, lanes, 100)
        claims = self.both(lambda store: store.claim(request, now=self.now), _tokens)
        mine = [claim for claim in claims if claim.id in self.nodes]
        starts = self.both(
            lambda store: store.job_starts([claim.id for claim in mine]),
            lambda found: sorted((str(row.id), row.result) for row in found.results.values()),
        )
        for claim in sorted(mine, key=lambda claim: claim.id.int):
            node = self.nodes[claim.id]
            self.begin(node)
            inputs = starts.details[claim.id].options.get(INPUTS, ())
            for need in node.needs:
                if str(need) in cast("list[str]", inputs) and self.state(need) is S.COMPLETED:
                    assert starts.results[need].result == self.results[need], "F5"
            self.held[claim.id] = claim
            self.order.append(claim.id)
        if mine:
            self.look()

    def begin(self, node: Node) -> None:
        """F1: the policy is met when the node begins for the first time, and it begins once per round."""
        node.begun += 1
        assert node.begun <= node.rounds, "F1"
        # A person may retry a node whose needs run again.
        assert node.begun > 1 or self.ends(node)[0] >= node.required, "F1"

    def complete(self, one: int, _: int) -> bool:
        return self._end(one, GOOD)

    def fail(self, one: int, _: int) -> bool:
        return self._end(one, BAD)

    def again(self, one: int, _: int) -> bool:
        return self._end(one, AGAIN)

    def give_up(self, one: int, _: int) -> bool:
        return self._end(one, GONE)

    def _end(self, one: int, way: Transition) -> bool:
        if not self.held:
            return False
        self._finish([(self._held(one), way, Additions())])
        return True

    def two_at_once(self, one: int, two: int) -> bool:
        """Two jobs end in one batch, with different ends."""
        if len(self.held) < 2:
            return False
        first, second = self._held(one), self._held(one + 1)
        self._finish([(first, GOOD, Additions()), (second, (GOOD, BAD, AGAIN)[two % 3], Additions())])
        return True

    def grow(self, one: int, two: int) -> bool:
        """F9: a job ends with new members of its group, one of which a waiting dependant needs as well."""
        growers = [claim for claim in self._claims() if self.nodes[claim.id].group is not None]
        if not growers:
            return False
        claim, way = growers[one % len(growers)], (GOOD, BAD, AGAIN)[two % 3]
        node = self.nodes[claim.id]
        assert node.group is not None
        group = self.groups[node.group]
        first = len(group.members)
        new = Node(new_id(), node.tenant, group=group.id, flow=node.flow)
        shard = grown_shard(first)
        job = self._job(new, flow_id=node.flow, group_id=group.id, group_shard=shard)
        before = [
            other
            for other in self.nodes.values()
            if claim.id in other.needs
            and other.required == len(other.needs)
            and self.state(other.id) is S.WAITING
        ][:1]
        additions = Additions(
            (job,),
            tuple(Edge(other.id, new.id) for other in before),
            (*grown_joins(group.id, first, 1), *(NewJoin(other.id, 0, 1, 0, 1) for other in before)),
        )
        if way is not GOOD:
            self.never.add(new.id)
        self._finish([(claim, way, additions)])
        if way is GOOD:
            self.nodes[new.id] = new
            group.members.append(new.id)
            for other in before:
                other.needs[new.id], other.required = C.SUCCESS, other.required + 1
        return True

    def _finish(self, ends: Sequence[tuple[Claim, Transition, Additions]]) -> None:
        batch = [self._written(*end) for end in ends]
        assert self.both(lambda store: store.finish(batch, now=self.now)) == frozenset()
        for finish in batch:
            self.results[finish.claim.id] = finish.result
            self._let_go(finish)

    def _written(self, claim: Claim, way: Transition, additions: Additions) -> Finish:
        result = json.dumps(len(self.order)) if way is GOOD else None
        return Finish(claim, way, result=result, additions=additions if additions.jobs else None)

    def _let_go(self, finish: Finish) -> None:
        node = self.nodes[finish.claim.id]
        self.former.append(self.held.pop(finish.claim.id))
        node.rounds += finish.transition.state is S.PENDING

    def crash(self, one: int, two: int) -> bool:
        """A transaction dies between the finish with its growth and the commit: nothing of it remains."""
        if not self.held:
            return False
        claim = self._held(one)
        lost = NewJob(new_id(), "work", tenant=claim.tenant)
        self.never.add(lost.id)
        finish = self._written(claim, (GOOD, BAD)[two % 2], Additions((lost,)))
        for store in self.stores:
            with suppress(_Undone), store.transaction():
                store.finish([finish], now=self.now)
                raise _Undone
        return True

    def zombie(self, one: int, two: int) -> bool:
        """A former holder ends a job with growth: it is refused."""
        if not self.former:
            return False
        claim = self.former[one % len(self.former)]
        lost = NewJob(new_id(), "work", tenant=claim.tenant)
        self.never.add(lost.id)
        finish = self._written(claim, (GOOD, BAD)[two % 2], Additions((lost,)))
        assert self.both(lambda store: store.finish([finish], now=self.now)) == {claim.id}
        return True

    def compensate(self, one: int, two: int) -> bool:
        """A step of a saga begins: its intent and its compensation are written, or a zombie writes neither."""
        live = [saga for saga in self.sagas if saga.id in self.held]
        if not live:
            return False
        saga = live[one % len(live)]
        claim, number = self.held[saga.id], len(saga.undos) + 1
        zombie = two % 4 == 3
        node = Node(new_id(), claim.tenant, {saga.id: C.NOT_SUCCESS}, 1)
        edges, joins = [Edge(node.id, saga.id, C.NOT_SUCCESS)], [NewJoin(node.id, 0, 1, 0, 1)]
        if saga.undos:
            edges.append(Edge(saga.undos[-1], node.id, C.END))
            joins.append(NewJoin(saga.undos[-1], 0, 1, 0, 1))
        intent = {f"{UNDO}s{number}": note_record("undo", job=str(node.id), number=number)}
        plan = UndoPlan(self._job(node), tuple(edges), tuple(joins), intent)
        if zombie:
            self.never.add(node.id)
            claim = claim._replace(token=claim.token - 1)
        for store in self.stores:
            if zombie:
                with pytest.raises(Cancel):
                    write_undo(store, claim, plan, self.now)
            else:
                write_undo(store, claim, plan, self.now)
        if not zombie:
            if saga.undos:
                last = self.nodes[saga.undos[-1]]
                last.needs[node.id], last.required = C.END, 2
            self.nodes[node.id] = node
            saga.undos.append(node.id)
        return True

    def cancel_waiting(self, one: int, _: int) -> bool:
        """A person cancels a node that waits."""
        waiting = [
            id for id in self.nodes if self.state(id) is S.WAITING and self.nodes[id].group is not None
        ]
        if not waiting:
            return False
        id = waiting[one % len(waiting)]
        move = Move(id, self.nodes[id].tenant, frozenset({S.WAITING}), S.CANCELLED)
        assert self.both(lambda store: store.move([move], now=self.now)) == {id}
        return True

    def retry(self, one: int, _: int) -> bool:
        """A failed node runs again, and its skipped followers wait again."""
        ended = [
            id
            for id, node in self.nodes.items()
            if node.flow == node.group != None and self.state(id) in _BAD  # noqa: E711
        ]
        if not ended:
            return False
        node = self.nodes[ended[one % len(ended)]]
        assert node.flow is not None
        moves = [Move(node.id, node.tenant, _BAD, S.PENDING, restart=True)]
        after, layer = list[Node](), {node.id}
        while layer:
            found = [
                other
                for other in self.nodes.values()
                if layer & other.needs.keys()
                and other.group
                and not other.begun
                and self.state(other.id) is S.CANCELLED
            ]
            found = [other for other in found if other not in after]
            after, layer = after + found, {other.id for other in found}
        moves += [
            Move(other.id, other.tenant, frozenset({S.CANCELLED}), S.WAITING, "needs") for other in after
        ]
        flow, tenant = node.flow, node.tenant
        changed = self.both(lambda store: store.reopen(flow, moves, tenant=tenant, now=self.now))
        assert changed == {move.id for move in moves}
        node.rounds += 1
        return True

    def release(self, one: int, _: int) -> bool:
        """The producer of a batch closes it."""
        opened = [group for group in self.groups.values() if group.held]
        if not opened:
            return False
        group = opened[one % len(opened)]
        self.both(
            lambda store: store.change_flow(group.id, tenant=group.tenant, release=True, now=self.now),
            lambda row: row and row.state,
        )
        group.held = False
        return True

    def cascade(self, *_: int) -> None:
        """The leader skips what can no longer start."""
        self.both(lambda store: CascadeDuty(store, self.clock, pinned=True)())

    def remove(self, one: int, two: int) -> bool:
        """F12: ended jobs of a live flow are neither deleted nor archived."""
        live = [group for group in self.groups.values() if self.group_state(group) == "running"]
        if not live:
            return False
        group = live[one % len(live)]
        ids = [id for id in group.members if self.state(id) in ENDED]
        assert self.both(lambda store: store.delete(ids, tenant=group.tenant)) == frozenset(), "F12"
        documents = self.both(lambda store: store.flow_documents(group.id, policy="p", tier="archive"), len)
        del documents, two
        return True

    def trespass(self, one: int, two: int) -> bool:
        """F13: no edge and no signal crosses tenants, and another tenant's flow cannot be changed."""
        waiting = [id for id in self.nodes if self.state(id) is S.WAITING]
        if not waiting:
            return False
        mine = self.nodes[waiting[one % len(waiting)]]
        strangers = [node.id for node in self.nodes.values() if node.tenant != mine.tenant]
        stranger = strangers[two % len(strangers)] if strangers else new_id()
        foreign = next(tenant for tenant in TENANTS if tenant != mine.tenant)
        signal = NewSignal(mine.id, foreign, "go", "1", None)
        for store in self.stores:
            with pytest.raises(JobNotFound):
                store.attach(
                    [Edge(mine.id, stranger)], job_joins(mine.id, 1), tenant=mine.tenant, now=self.now
                )
        assert self.both(lambda store: store.post_signals([signal], now=self.now)) != [Posted.ACCEPTED], "F13"
        if mine.flow is not None:
            flow = mine.flow
            assert self.both(lambda store: store.change_flow(flow, tenant=foreign, stops=True)) is None, "F13"
        return True

    def _claims(self) -> list[Claim]:
        return [self.held[id] for id in sorted(self.held, key=lambda id: id.int)]

    def _held(self, one: int) -> Claim:
        return self._claims()[one % len(self.held)]

    def finish(self) -> None:
        """Let everything end well, and check what must hold then."""
        self.explain()
        for group in [group for group in self.groups.values() if group.held]:
            self.release(0, 0)
            del group
        for _ in range(30):
            self.settle()
            for claim in self._claims():
                self._finish([(claim, GOOD, Additions())])
            self.cascade()
            self.look()
            if not self.held and all(row.state in ENDED for row in self.rows.values()):
                break
        self.settle()
        assert all(row.state in ENDED for row in self.rows.values()), "F2"
        self._check_callbacks()
        self._check_sagas()
        self._check_edges()
        after = UUID(int=min(id.int for id in [*self.nodes, *self.groups]) - 1)
        assert (
            self.both(lambda store: store.recount_joins(after=after, now=self.now).repaired) == frozenset()
        ), "F14"


def _tokens(claims: Sequence[Claim]) -> object:
    return sorted((str(claim.id), claim.token, claim.attempt) for claim in claims)


def hire(store: Store, worker: UUID) -> None:
    """Register the worker of the machine."""
    store.register(Worker(worker, "machine"), lease=_LEASE, now=T0)
