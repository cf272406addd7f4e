"""Laws of flows: ends are counted where they are written (laws 26, 29 to 31, 33 and 34)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import (
    OWNER,
    Additions,
    Edge,
    EdgeCondition,
    FlowFilter,
    FlowRow,
    FlowState,
    GroupKind,
    NewGroup,
    NewJoin,
    StepRecord,
    Wait,
    group_joins,
    grown_joins,
    grown_shard,
    job_joins,
    shard_of,
)
from tidemill.domain.job import Details, Finish, Move, UniqueHold
from tidemill.domain.node_results import LARGEST_READ_AHEAD
from tidemill.domain.record import Keep
from tidemill.domain.references import INPUTS
from tidemill.domain.retention import Selection, Selector
from tidemill.domain.states import JobState
from tidemill.errors import BatchEnded, JobExists, JobNotFound, UsageError, WaitCycle
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    ENDS,
    FAILED,
    REVIEW,
    SUSPENDED,
    a_job,
    at,
    claim_all,
    claim_one,
    finish_all,
    get_one,
    put_one,
    wants,
)

S, C = JobState, EdgeCondition
_ENDED_OTHERWISE = [ENDS[state] for state in sorted(ENDS) if state is not S.COMPLETED]


def state_of(store: Store, id: UUID) -> JobState:
    """Return the state of a job."""
    return get_one(store, id).state


def flow_of(store: Store, id: UUID) -> FlowRow:
    """Return a group."""
    (flow,) = store.flow([id], tenant=ALL_TENANTS)
    return flow


def start(
    store: Store,
    names: Sequence[str],
    needs: dict[str, dict[str, EdgeCondition]],
    *,
    required: dict[str, int] | None = None,
    may_fail: Sequence[str] = (),
    **group: Any,
) -> dict[str, UUID]:
    """Start a flow of these nodes; ``flow`` is the id of the flow itself."""
    ids = {name: new_id() for name in names} | {"flow": new_id()}
    total = len(names)
    jobs = [
        a_job(
            "work",
            id=ids[name],
            waiting="needs" if name in needs else None,
            details=Details(
                flow_id=ids["flow"],
                node=name,
                group_id=ids["flow"],
                group_shard=shard_of(place, total),
                may_fail=name in may_fail,
            ),
        )
        for place, name in enumerate(names)
    ]
    edges = [Edge(ids[name], ids[need], on) for name in needs for need, on in needs[name].items()]
    joins = [
        row
        for name in needs
        for row in job_joins(ids[name], len(needs[name]), required=(required or {}).get(name))
    ]
    flow = NewGroup(ids["flow"], "default", GroupKind.FLOW, "f", **group)
    joins += group_joins(ids["flow"], total)
    started = store.start_flow([flow], jobs, edges, joins, now=at(0))
    assert started == (ids["flow"], True)
    return ids


def run(store: Store, id: UUID, way: Any = COMPLETED, **how: Any) -> None:
    """Claim this job, which must be pending, and finish it."""
    claims = {claim.id: claim for claim in claim_all(store, now=at(1))}
    others = [claim for key, claim in claims.items() if key != id]
    finish_all(store, others, AGAIN, now=at(1))
    finish_all(store, [claims[id]], way, now=at(1), **how)


class FlowLaws:
    """Graphs of jobs."""

    def test_a_job_is_released_by_the_end_of_the_last_job_it_needs(self, store: Store) -> None:
        ids = start(store, ["a", "b", "c"], {"c": {"a": C.SUCCESS, "b": C.SUCCESS}})
        assert state_of(store, ids["c"]) is S.WAITING
        run(store, ids["a"])
        assert state_of(store, ids["c"]) is S.WAITING
        run(store, ids["b"])
        job = get_one(store, ids["c"])
        assert (job.state, job.run_at, job.reason) == (S.PENDING, at(1), None)
        run(store, ids["c"])
        assert (flow_of(store, ids["flow"]).state, flow_of(store, ids["flow"]).ended_at) == (
            FlowState.COMPLETED,
            at(1),
        )

    def test_a_job_that_waits_again_while_another_need_stays_failed_is_noted(self, store: Store) -> None:
        ids = start(store, ["a", "b", "c"], {"c": {"a": C.SUCCESS, "b": C.SUCCESS}})
        finish_all(store, claim_all(store), FAILED, now=at(1))
        store.move([Move(ids["c"], "default", frozenset({S.WAITING}), S.CANCELLED)], now=at(1))
        store.drop_unreachable([ids["c"]])
        again = [
            Move(ids["a"], "default", frozenset({S.FAILED}), S.PENDING, restart=True),
            Move(ids["c"], "default", frozenset({S.CANCELLED}), S.WAITING),
        ]
        assert store.reopen(ids["flow"], again, tenant="default", now=at(2)) == {ids["a"], ids["c"]}
        assert [row.job_id for row in store.unreachable(10)] == [ids["c"]]
        other = [Move(ids["b"], "default", frozenset({S.FAILED}), S.PENDING, restart=True)]
        assert store.reopen(ids["flow"], other, tenant="default", now=at(3)) == {ids["b"]}
        assert store.unreachable(10) == []
        finish_all(store, claim_all(store), now=at(4))
        assert state_of(store, ids["c"]) is S.PENDING

    def test_needs_that_end_in_one_batch_release_their_job_once(self, store: Store) -> None:
        ids = start(store, ["a", "b", "c"], {"c": {"a": C.SUCCESS, "b": C.SUCCESS}}, required={"c": 1})
        finish_all(store, claim_all(store), now=at(1))
        assert claim_one(store, ids["c"]).attempt == 1

    def test_a_step_claims_the_job_that_its_finish_releases(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        request = wants(store)
        claim = claim_one(store, ids["a"])
        step = store.step([Finish(claim, COMPLETED, tied=True)], request, now=at(1))
        assert [claim.id for claim in step.claims] == [ids["b"]]
        assert step.lost == frozenset()

    def test_a_step_without_the_hint_finishes_a_tied_job(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        plain = put_one(store)
        claims = claim_all(store)
        step = store.step([Finish(claim, COMPLETED) for claim in claims], wants(store), now=at(1))
        assert step.lost == frozenset()
        assert state_of(store, ids["a"]) is state_of(store, plain) is S.COMPLETED
        assert state_of(store, ids["b"]) in (S.PENDING, S.RUNNING)

    @pytest.mark.parametrize("way", _ENDED_OTHERWISE, ids=lambda way: way.state.value)
    @pytest.mark.parametrize("condition", sorted(set(EdgeCondition) - {C.FIRST_FAILURE}))
    def test_an_end_counts_for_the_edges_whose_condition_it_meets(
        self, store: Store, condition: EdgeCondition, way: Any
    ) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": condition}})
        run(store, ids["a"], way)
        failed = way.state is not S.CANCELLED
        met = condition in (C.END, C.NOT_SUCCESS) or (condition is C.FAILURE and failed)
        assert state_of(store, ids["b"]) is (S.PENDING if met else S.WAITING)
        assert [row.job_id for row in store.unreachable(10)] == ([] if met else [ids["b"]])

    def test_a_retry_of_a_need_is_no_end(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.END}})
        run(store, ids["a"], AGAIN)
        run(store, ids["a"], REVIEW)
        assert state_of(store, ids["b"]) is S.WAITING
        store.move([Move(ids["a"], "default", frozenset({S.REVIEW_NEEDED}), S.COMPLETED)], now=at(2))
        assert state_of(store, ids["b"]) is S.PENDING

    def test_a_rejected_finish_counts_nothing(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        claim = claim_one(store, ids["a"])
        stale = [Finish(claim._replace(token=7), COMPLETED, tied=tied) for tied in (True,)]
        assert store.finish(stale, now=at(1)) == {ids["a"]}
        assert store.finish([Finish(claim._replace(token=7), COMPLETED)], now=at(1)) == {ids["a"]}
        assert state_of(store, ids["b"]) is S.WAITING
        finish_all(store, [claim], now=at(1))
        assert store.finish([Finish(claim, COMPLETED)], now=at(2)) == {ids["a"]}
        assert store.joins_of([ids["b"]])[0].remaining == 0

    def test_a_cancelled_waiting_job_is_counted(self, store: Store) -> None:
        ids = start(store, ["a", "b", "c"], {"b": {"a": C.SUCCESS}, "c": {"b": C.END}})
        moves = [Move(ids["b"], "default", frozenset({S.WAITING}), S.CANCELLED)]
        assert store.move(moves, now=at(1)) == {ids["b"]}
        assert state_of(store, ids["c"]) is S.PENDING

    def test_a_flow_fails_if_a_job_failed_that_may_not(self, store: Store) -> None:
        for may_fail, state in ((["a"], FlowState.COMPLETED), ([], FlowState.FAILED)):
            ids = start(store, ["a", "b"], {}, may_fail=may_fail)
            run(store, ids["a"], FAILED)
            run(store, ids["b"])
            assert flow_of(store, ids["flow"]).state is state

    def test_the_first_failure_of_a_group_releases_its_callback(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {})
        call = put_one(store, waiting="first failure")
        store.attach([Edge(call, ids["flow"], C.FIRST_FAILURE)], job_joins(call, 1), tenant="default")
        run(store, ids["a"], FAILED)
        assert state_of(store, call) is S.PENDING
        assert flow_of(store, ids["flow"]).state is FlowState.RUNNING

    def test_a_callback_of_a_failure_that_never_came_is_unreachable(self, store: Store) -> None:
        ids = start(store, ["a"], {})
        call = put_one(store, waiting="first failure")
        store.attach([Edge(call, ids["flow"], C.FIRST_FAILURE)], job_joins(call, 1), tenant="default")
        run(store, ids["a"])
        assert [row.job_id for row in store.unreachable(10)] == [call]
        store.drop_unreachable([call])
        assert store.unreachable(10) == []

    @pytest.mark.parametrize("members", [65, 200])
    def test_a_wide_group_closes_with_its_last_member(self, store: Store, members: int) -> None:
        ids = start(store, [f"n{place}" for place in range(members)], {})
        after = put_one(store, waiting="group")
        store.attach([Edge(after, ids["flow"], C.END)], job_joins(after, 1), tenant="default")
        claims = claim_all(store)
        finish_all(store, claims[:10], now=at(1))
        finish_all(store, claims[10:-1], FAILED, now=at(1))
        assert store.group_counts([ids["flow"]]) == [(ids["flow"], members, 1, members - 11)]
        assert state_of(store, after) is S.WAITING
        finish_all(store, claims[-1:], now=at(1))
        assert state_of(store, after) is S.PENDING
        assert flow_of(store, ids["flow"]).state is FlowState.FAILED
        assert store.recount_joins(now=at(2)).repaired == frozenset()

    def test_a_group_in_a_group_is_counted_when_it_closes(self, store: Store) -> None:
        outer, inner, job = new_id(), new_id(), new_id()
        groups = [
            NewGroup(outer, "default", GroupKind.FLOW, "outer"),
            NewGroup(inner, "default", GroupKind.MAP, "inner", group_id=outer),
        ]
        new = a_job(id=job, details=Details(flow_id=outer, group_id=inner, group_shard=0))
        store.start_flow(groups, [new], [], [*group_joins(outer, 1), *group_joins(inner, 1)], now=at(0))
        run(store, job, FAILED)
        assert [flow_of(store, id).state for id in (inner, outer)] == [FlowState.FAILED] * 2

    def test_a_group_without_members_closes_at_once(self, store: Store) -> None:
        flow, empty, job = new_id(), new_id(), new_id()
        groups = [
            NewGroup(flow, "default", GroupKind.FLOW, "f"),
            NewGroup(empty, "default", GroupKind.MAP, "m", group_id=flow),
        ]
        new = a_job(id=job, waiting="map", details=Details(flow_id=flow, group_id=flow, group_shard=0))
        joins = [*group_joins(flow, 2), *group_joins(empty, 0), *job_joins(job, 1)]
        store.start_flow(groups, [new], [Edge(job, empty)], joins, now=at(0))
        assert (flow_of(store, empty).state, state_of(store, job)) == (FlowState.COMPLETED, S.PENDING)

    def test_a_flow_is_started_once_per_key(self, store: Store) -> None:
        ids = start(store, ["a"], {}, key="k")
        again = NewGroup(new_id(), "default", GroupKind.FLOW, "f", key="k")
        assert store.start_flow([again], [a_job()], [], group_joins(again.id, 1)) == (ids["flow"], False)
        assert len(claim_all(store)) == 1

    def test_a_start_that_is_refused_writes_nothing(self, store: Store) -> None:
        stored = put_one(store)
        flow = NewGroup(new_id(), "default", GroupKind.FLOW, "f", key="k")
        new = a_job()
        for jobs, edges, error in [
            ([new, a_job(id=stored)], [], JobExists),
            ([new], [Edge(new.id, new_id())], JobNotFound),
            ([new._replace(tenant="b")], [], UsageError),
            ([new._replace(unique=UniqueHold("u"))], [Edge(new.id, stored)], UsageError),
            ([new], [Edge(new.id, new.id)], WaitCycle),
        ]:
            with pytest.raises(error):
                store.start_flow([flow], jobs, edges, group_joins(flow.id, 1))
        assert store.flow([flow.id], tenant=ALL_TENANTS) == []
        assert store.get([new.id], tenant=ALL_TENANTS) == []
        assert store.edges_of([new.id]) == []
        assert store.joins_of([flow.id]) == []

    def test_edges_do_not_cross_tenants(self, store: Store) -> None:
        other = put_one(store, tenant="b")
        waits = put_one(store, waiting="other")
        with pytest.raises(JobNotFound):
            store.attach([Edge(waits, other)], job_joins(waits, 1), tenant="default")

    @pytest.mark.parametrize("ended", [True, False])
    def test_an_edge_to_a_job_counts_an_end_before_and_after_it(self, store: Store, ended: bool) -> None:
        need = put_one(store)
        waits = put_one(store, waiting="need")
        claim = claim_one(store, need)
        if ended:
            finish_all(store, [claim], now=at(1))
        store.attach([Edge(waits, need)], job_joins(waits, 1), tenant="default", now=at(2))
        if not ended:
            assert state_of(store, waits) is S.WAITING
            assert store.finish([Finish(claim, COMPLETED)], now=at(3)) == frozenset()
        assert state_of(store, waits) is S.PENDING

    def test_an_archived_need_has_ended(self, store: Store) -> None:
        need = put_one(store)
        finish_all(store, [claim_one(store, need)], now=at(1))
        documents = store.archivable(Selection(Selector()), policy="p", tier="archive")
        store.put_archive(documents, now=at(2))
        store.forget(documents)
        waits = put_one(store, waiting="need")
        store.attach([Edge(waits, need)], job_joins(waits, 1), tenant="default", now=at(2))
        assert state_of(store, waits) is S.PENDING

    def test_jobs_cannot_wait_for_each_other(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        for need in ("b", "flow"):
            with pytest.raises(WaitCycle):
                store.attach([Edge(ids["a"], ids[need])], job_joins(ids["a"], 1), tenant="default")
        assert store.joins_of([ids["a"]]) == []

    def test_additions_are_written_with_a_completion(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        claim = claim_one(store, ids["a"])
        grown = a_job(
            details=Details(flow_id=ids["flow"], node="c", group_id=ids["flow"], group_shard=grown_shard(0))
        )
        additions = Additions(
            jobs=(grown,),
            edges=(Edge(ids["b"], grown.id),),
            joins=(*grown_joins(ids["flow"], 0, 1), NewJoin(ids["b"], 0, 1, 0, 1)),
            records=(StepRecord(claim.id, claim.token, claim.worker, "step/x", "1"),),
        )
        finish_all(store, [claim], now=at(1), additions=additions)
        assert state_of(store, ids["b"]) is S.WAITING
        assert store.group_counts([ids["flow"]])[0][1:] == (3, 2, 0)
        run(store, grown.id)
        run(store, ids["b"])
        assert flow_of(store, ids["flow"]).state is FlowState.COMPLETED
        assert store.checkpoints(ids["a"], tenant="default") == {"step/x": "1"}

    @pytest.mark.parametrize("way", [FAILED, AGAIN, REVIEW], ids=lambda way: way.state.value)
    def test_additions_are_not_written_with_another_end(self, store: Store, way: Any) -> None:
        claim = claim_one(store, put_one(store))
        job = a_job()
        record = StepRecord(claim.id, claim.token, claim.worker, "step/x", "1")
        additions = Additions(jobs=(job,), records=(record,), waits=(Wait("go"),))
        finish_all(store, [claim], way, additions=additions)
        assert store.get([job.id], tenant=ALL_TENANTS) == []
        assert store.checkpoints(claim.id, tenant="default") == {}
        assert store.waits([claim.id], tenant="default") == []

    def test_additions_of_a_lost_job_are_not_written(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        job = a_job()
        finish = Finish(claim._replace(token=9), COMPLETED, additions=Additions(jobs=(job,)))
        assert store.finish([finish]) == {claim.id}
        assert store.get([job.id], tenant=ALL_TENANTS) == []

    def test_a_suspended_job_waits_for_its_children(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        child = a_job()
        additions = Additions((child,), (Edge(claim.id, child.id, C.END),), tuple(job_joins(claim.id, 1)))
        finish_all(store, [claim], SUSPENDED, additions=additions, now=at(1))
        assert state_of(store, claim.id) is S.WAITING
        run(store, child.id, FAILED)
        assert state_of(store, claim.id) is S.PENDING

    def test_a_suspended_job_whose_needs_have_ended_is_pending(self, store: Store) -> None:
        need = put_one(store)
        finish_all(store, [claim_one(store, need)])
        claim = claim_one(store, put_one(store))
        additions = Additions(edges=(Edge(claim.id, need),), joins=tuple(job_joins(claim.id, 1)))
        for _ in range(2):  # a second suspension replaces the join
            finish_all(store, [claim], SUSPENDED, additions=additions, now=at(1))
            assert state_of(store, claim.id) is S.PENDING
            claim = claim_one(store, claim.id)

    def test_jobs_that_suspend_together_cannot_wait_for_each_other(self, store: Store) -> None:
        put_one(store)
        put_one(store)
        claims = claim_all(store)
        finishes = [
            Finish(
                claim,
                SUSPENDED,
                additions=Additions(edges=(Edge(claim.id, other.id),), joins=tuple(job_joins(claim.id, 1))),
            )
            for claim, other in zip(claims, reversed(claims), strict=True)
        ]
        with pytest.raises(WaitCycle):
            store.finish(finishes, now=at(1))
        assert {state_of(store, claim.id) for claim in claims} <= {S.CLAIMED, S.RUNNING}
        assert store.edges_of([claim.id for claim in claims]) == []

    def test_a_suspended_job_with_a_cancel_request_adds_nothing(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.request_cancel([claim.id], tenant="default", reason="enough")
        child = a_job()
        additions = Additions((child,), waits=(Wait("go"),))
        finish_all(store, [claim], SUSPENDED, additions=additions, now=at(1))
        assert state_of(store, claim.id) is S.CANCELLED
        assert store.get([child.id], tenant=ALL_TENANTS) == []
        assert store.waits([claim.id], tenant="default") == []

    def test_a_tied_job_keeps_its_row(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        finish_all(store, [claim_one(store, ids["a"])], keep=Keep.NOTHING, now=at(1))
        assert (state_of(store, ids["a"]), state_of(store, ids["b"])) == (S.COMPLETED, S.PENDING)

    def test_a_job_that_leaves_nothing_leaves_nothing_beside_a_tied_one(self, store: Store) -> None:
        ids = start(store, ["a"], {})
        light = put_one(store)
        finish_all(store, claim_all(store), keep=Keep.NOTHING, tied=True, now=at(1))
        assert {job.id for job in store.get([ids["a"], light], tenant=ALL_TENANTS)} == {ids["a"]}

    def test_a_need_of_a_waiting_job_is_not_deleted(self, store: Store) -> None:
        need = put_one(store)
        finish_all(store, [claim_one(store, need)])
        waits = put_one(store, waiting="two")
        other = put_one(store)
        store.attach([Edge(waits, need), Edge(waits, other)], job_joins(waits, 2), tenant="default")
        assert store.delete([need], tenant="default") == frozenset()
        finish_all(store, [claim_one(store, other)])
        finish_all(store, [claim_one(store, waits)])
        assert store.delete([need], tenant="default") == {need}

    def test_a_reopened_job_is_counted_back(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        run(store, ids["a"], FAILED)
        assert [row.job_id for row in store.unreachable(10)] == [ids["b"]]
        moves = [Move(ids["a"], "default", frozenset({S.FAILED}), S.PENDING, restart=True)]
        assert store.move(moves, now=at(2)) == {ids["a"]}
        assert store.unreachable(10) == []
        assert store.group_counts([ids["flow"]])[0][1:] == (2, 2, 0)
        run(store, ids["a"])
        assert state_of(store, ids["b"]) is S.PENDING

    def test_an_ended_flow_runs_again_when_its_nodes_are_reopened(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        run(store, ids["a"], FAILED)
        store.move([Move(ids["b"], "default", frozenset({S.WAITING}), S.CANCELLED)], now=at(2))
        assert flow_of(store, ids["flow"]).state is FlowState.FAILED
        moves = [
            Move(ids["a"], "default", frozenset({S.FAILED}), S.PENDING, restart=True),
            Move(ids["b"], "default", frozenset({S.CANCELLED}), S.WAITING, restart=True),
        ]
        assert store.reopen(ids["flow"], moves, tenant="default", now=at(3)) == {ids["a"], ids["b"]}
        flow = flow_of(store, ids["flow"])
        assert (flow.state, flow.ended_at, flow.round) == (FlowState.RUNNING, None, 2)
        assert store.recount_joins(now=at(3)).repaired == frozenset()
        run(store, ids["a"])
        run(store, ids["b"])
        assert flow_of(store, ids["flow"]).state is FlowState.COMPLETED

    def test_a_node_that_waits_again_for_ended_needs_is_released(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        run(store, ids["a"])
        run(store, ids["b"], FAILED)
        moves = [Move(ids["b"], "default", frozenset({S.FAILED}), S.WAITING)]
        # Its join is full already, so nothing would ever release it.
        store.reopen(ids["flow"], moves, tenant="default", now=at(3))
        assert state_of(store, ids["b"]) is S.PENDING

    def test_an_open_batch_grows_and_closes_when_it_is_released(self, store: Store) -> None:
        batch = new_id()
        group = NewGroup(batch, "default", GroupKind.BATCH, "b", held=1)
        store.start_flow([group], [], [], group_joins(batch, 0, held=1), now=at(0))
        jobs = [
            a_job(details=Details(group_id=batch, position=place, group_shard=grown_shard(place)))
            for place in range(12)
        ]
        store.grow_group(batch, jobs, grown_joins(batch, 0, 12), tenant="default", now=at(1))
        assert store.group_counts([batch]) == [(batch, 12, 12, 0)]
        assert [job.details.position for job in store.group_jobs(batch, tenant="default", after=9)] == [
            10,
            11,
        ]
        finish_all(store, claim_all(store), now=at(2))
        assert store.group_counts([batch]) == [(batch, 12, 0, 0)]
        assert flow_of(store, batch).state is FlowState.RUNNING
        assert store.recount_joins(now=at(2)).repaired == frozenset()
        changed = store.change_flow(batch, tenant="default", release=True, now=at(3))
        assert changed is not None
        assert (changed.state, changed.held) == (FlowState.COMPLETED, 0)
        with pytest.raises(BatchEnded):
            store.grow_group(batch, [], [], tenant="default")

    def test_the_results_that_jobs_take_are_read_with_their_details(self, store: Store) -> None:
        need, other, late = (put_one(store) for _ in range(3))
        claims = {claim.id: claim for claim in claim_all(store)}
        large = json.dumps("x" * LARGEST_READ_AHEAD)
        store.finish([Finish(claims[need], COMPLETED, result="[1]")], now=at(1))
        store.finish([Finish(claims[other], COMPLETED, result=large)], now=at(1))
        options = {INPUTS: [str(need), str(other), str(late), str(new_id())]}
        job = put_one(store, details=Details(options=options, node="sum"))
        details, results = store.job_starts([job, new_id()])
        assert details[job].options == options
        assert details.keys() == {job}
        # The other result is too large, and the last job has not ended.
        (row,) = results.values()
        assert (row.id, row.name, row.state, row.result) == (need, row.task, S.COMPLETED, "[1]")
        assert store.job_starts([]) == ({}, {})

    def test_results_of_another_tenant_are_not_read(self, store: Store) -> None:
        need = put_one(store, tenant="other")
        claim = claim_one(store, need)
        store.finish([Finish(claim, COMPLETED, result="1")], now=at(1))
        job = put_one(store, details=Details(options={INPUTS: [str(need)]}))
        assert store.job_starts([job]).results == {}

    def test_the_results_of_a_group_are_read_by_position(self, store: Store) -> None:
        batch = new_id()
        group = NewGroup(batch, "default", GroupKind.BATCH, "b")
        jobs = [
            a_job(details=Details(group_id=batch, position=place, node=f"n{place}")) for place in range(3)
        ]
        store.start_flow([group], jobs, [], group_joins(batch, 3), now=at(0))
        first, _, _ = sorted(claim_all(store), key=lambda claim: [job.id for job in jobs].index(claim.id))
        store.finish([Finish(first, COMPLETED, result="7")], now=at(1))
        rows = store.group_results(batch, tenant="default")
        assert [(row.position, row.node, row.state, row.result) for row in rows] == [
            (0, "n0", S.COMPLETED, "7"),
            (1, "n1", None, None),
            (2, "n2", None, None),
        ]
        assert [row.id for row in store.group_results(batch, tenant="default", after=0, limit=1)] == [
            jobs[1].id
        ]
        assert store.group_results(batch, tenant="other") == []

    def test_the_first_cancel_reason_of_a_flow_stays(self, store: Store) -> None:
        ids = start(store, ["a"], {})
        for reason in ("one", "two"):
            store.change_flow(ids["flow"], tenant="default", cancel_reason=reason, stops=True)
        where = FlowFilter("default", ending=True)
        assert [(flow.cancel_reason, flow.stops) for flow in store.flows(where)] == [("one", True)]
        run(store, ids["a"])
        assert flow_of(store, ids["flow"]).state is FlowState.CANCELLED
        assert store.change_flow(ids["flow"], tenant="default", stops=True) is None
        assert store.flows(where) == []

    def test_a_live_map_is_abandoned_once_its_owner_is_cancelled(self, store: Store) -> None:
        owner = put_one(store, now=at(1))
        ids = [new_id() for _ in range(3)]
        for id, rules in zip(ids, ({OWNER: owner.hex}, {OWNER: new_id().hex}, {}), strict=True):
            member = a_job(details=Details(group_id=id, group_shard=shard_of(0, 1), position=0))
            group = NewGroup(id, "default", GroupKind.MAP, "map", rules=rules)
            store.start_flow([group], [member], [], group_joins(id, 1), now=at(1))
        where = FlowFilter("default", abandoned=True)
        assert store.flows(where) == []
        store.move([Move(owner, "default", frozenset({S.PENDING}), S.CANCELLED, "not wanted")], now=at(2))
        assert [flow.id for flow in store.flows(where)] == ids[:1]
        assert store.flows(FlowFilter("b", abandoned=True)) == []
        store.change_flow(ids[0], tenant="default", cancel_reason="its owner was cancelled")
        assert store.flows(where) == []

    def test_flows_and_their_jobs_are_read_in_pages(self, store: Store) -> None:
        flows = [start(store, ["a", "b", "c"], {})["flow"] for _ in range(3)]
        newest = sorted(flows, reverse=True)
        page = store.flows(FlowFilter("default"), limit=2)
        assert [flow.id for flow in page] == newest[:2]
        assert [flow.id for flow in store.flows(FlowFilter("default"), after=page[-1].id)] == newest[2:]
        assert store.flows(FlowFilter("b")) == []
        jobs = store.flow_jobs(flows[0], tenant="default", limit=2)
        rest = store.flow_jobs(flows[0], tenant="default", after=jobs[-1].id)
        assert sorted(job.details.node or "" for job in [*jobs, *rest]) == ["a", "b", "c"]
        assert store.flow_jobs(flows[0], tenant="b") == []
