"""Laws of archived flows: a flow leaves the live tables as one (law 29)."""

from __future__ import annotations

from dataclasses import replace

from tidemill.domain.archived_flows import (
    FlowParts,
    archived_flow,
    read_flow_counts,
    read_flow_parts,
    read_flow_row,
)
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.graph import (
    Additions,
    Edge,
    EdgeCondition,
    FlowFilter,
    FlowTotals,
    GroupKind,
    NewGroup,
    Wait,
    group_joins,
    job_joins,
)
from tidemill.domain.job import Move
from tidemill.domain.retention import Position, Selection, Selector
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.flows import flow_of, run, start
from tidemill.testing.conformance.kit import (
    ASLEEP,
    FAILED,
    SUSPENDED,
    at,
    claim_one,
    finish_all,
    put_one,
)

S, C = JobState, EdgeCondition


class ArchivedFlowLaws:
    """The end of flows, and their documents."""

    def test_nothing_of_a_live_flow_leaves_the_live_tables(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        run(store, ids["a"])
        assert store.delete([ids["a"]], tenant="default") == frozenset()
        assert store.archivable(Selection(Selector()), policy="p", tier="archive") == []
        assert store.drop_flows([ids["flow"]]) == frozenset()
        assert store.due_flows(Selection(Selector())) == []
        run(store, ids["b"])
        # They leave with their flow, except for policies that copy single jobs.
        assert store.archivable(Selection(Selector()), policy="p", tier="archive") == []
        copies = store.archivable(Selection(Selector(), members=True), policy="p", tier="archive")
        assert {document.id for document in copies} == {ids["a"], ids["b"]}
        assert [flow.id for flow in store.due_flows(Selection(Selector()))] == [ids["flow"]]
        first = store.flow_documents(ids["flow"], policy="p", tier="archive", limit=1)
        rest = store.flow_documents(ids["flow"], policy="p", tier="archive", after=first[0].position)
        assert [document.id for document in [*first, *rest]] == [ids["a"], ids["b"]]
        assert store.drop_flows([ids["flow"]]) == frozenset()
        assert store.forget([*first, *rest]) == {ids["a"], ids["b"]}
        assert store.drop_flows([ids["flow"]]) == {ids["flow"]}
        assert store.flow([ids["flow"]], tenant=ALL_TENANTS) == []
        assert store.joins_of(list(ids.values())) == []
        assert store.edges_of(list(ids.values())) == []

    def test_a_flow_is_due_by_its_name_and_its_end(self, store: Store) -> None:
        ids = start(store, ["a"], {})
        run(store, ids["a"])
        flow = flow_of(store, ids["flow"])
        assert flow.ended_at is not None
        due = Selection(Selector(tasks=frozenset({flow.name})), until=Position(flow.ended_at, flow.id))
        assert [row.id for row in store.due_flows(due)] == [flow.id]
        assert store.due_flows(replace(due, after=due.until)) == []
        assert store.due_flows(replace(due, exclude=(Selector(),))) == []
        assert store.due_flows(Selection(Selector(tasks=frozenset({"other"})))) == []
        assert store.due_flows(Selection(Selector(states=frozenset({S.FAILED})))) == []

    def test_a_flow_that_another_job_needs_is_not_due(self, store: Store) -> None:
        ids = start(store, ["a"], {})
        waits, other = put_one(store, waiting="two"), put_one(store)
        store.attach([Edge(waits, ids["a"]), Edge(waits, other)], job_joins(waits, 2), tenant="default")
        run(store, ids["a"])
        assert store.due_flows(Selection(Selector())) == []
        run(store, other)
        run(store, waits)
        assert [row.id for row in store.due_flows(Selection(Selector()))] == [ids["flow"]]

    def test_the_document_of_an_archived_flow_is_kept_moved_and_deleted(self, store: Store) -> None:
        ids = start(store, ["a"], {})
        run(store, ids["a"])
        flow = flow_of(store, ids["flow"])
        parts = FlowParts((ids["a"],), (), (), tuple(store.group_counts([flow.id])))
        document = archived_flow(flow, parts, tier="warm", policy="p")
        store.put_archived_flow(document, now=at(5))
        store.put_archived_flow(document, now=at(6))
        assert store.archived_flows([flow.id], tenant="other") == []
        (stored,) = store.archived_flows([flow.id], tenant="default")
        assert (stored.sound, stored.archived_at, read_flow_parts(stored)) == (True, at(6), parts)
        assert read_flow_row(stored) == replace(flow, archived_at=at(6), tier="warm")
        assert read_flow_counts(stored)[1:] == (1, 0, 0)
        where = FlowFilter("default", kinds=frozenset({GroupKind.FLOW}), name=flow.name)
        assert [row.id for row in store.search_archived_flows(where)] == [flow.id]
        assert store.search_archived_flows(where, after=flow.id) == []
        assert store.search_archived_flows(FlowFilter("other")) == []
        assert store.move_archived_flows(Selection(Selector(), "cold"), tier=None, policy="q") == 0
        assert store.move_archived_flows(Selection(Selector(), "warm"), tier="cold", policy="q") == 1
        assert store.archived_flows([flow.id], tenant=ALL_TENANTS)[0].tier == "cold"
        assert store.move_archived_flows(Selection(Selector(), "cold"), tier=None, policy="q") == 1
        store.put_archived_flow(document, now=at(7))
        assert store.erase_archived_flows("other") == 0
        assert store.erase_archived_flows("default") == 1
        assert store.archived_flows([flow.id], tenant=ALL_TENANTS) == []

    def test_an_empty_group_outside_of_flows_is_found_when_nothing_needs_it(self, store: Store) -> None:
        group = NewGroup(new_id(), "default", GroupKind.MAP, "m")
        waits, other = put_one(store, waiting="two"), put_one(store)
        store.start_flow([group], [], [], group_joins(group.id, 0), now=at(0))
        edges = [Edge(waits, group.id), Edge(waits, other)]
        store.attach(edges, job_joins(waits, 2), tenant="default")
        assert store.empty_groups(at(9)) == []
        run(store, other)
        run(store, waits)
        assert [row.id for row in store.empty_groups(at(9))] == [group.id]
        assert store.empty_groups(at(0)) == []

    def test_flows_and_waiting_jobs_are_counted(self, store: Store) -> None:
        assert store.flow_totals(tenant="default", ended_after=at(0)) == FlowTotals()
        waits = Additions(waits=(Wait("go"),)), Additions(waits=(Wait("e", event=True),)), Additions()
        for way, additions in zip((SUSPENDED, SUSPENDED, ASLEEP), waits, strict=True):
            finish_all(store, [claim_one(store, put_one(store))], way, additions=additions, now=at(1))
        run(store, start(store, ["a"], {})["a"])
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        totals = store.flow_totals(tenant="default", ended_after=at(0))
        assert totals == FlowTotals(1, 1, 0, 0, 1, 1, 1, 1)
        assert store.flow_totals(tenant=ALL_TENANTS, ended_after=at(2)) == totals._replace(completed=0)
        assert store.flow_totals(tenant="other", ended_after=at(0)) == FlowTotals()
        run(store, ids["a"], FAILED)
        totals = store.flow_totals(tenant="default", ended_after=at(0))
        assert (totals.unreachable, totals.unreachable_at) == (1, at(1))

    def test_a_flow_without_progress_is_found(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        assert store.stalled_flows(tenant="default", before=at(0)) == []
        assert [flow.id for flow in store.stalled_flows(tenant="default", before=at(9))] == [ids["flow"]]
        assert store.stalled_flows(tenant="other", before=at(9)) == []
        claim = claim_one(store, ids["a"])
        assert store.stalled_flows(tenant=ALL_TENANTS, before=at(9)) == []
        finish_all(store, [claim], now=at(10))
        assert store.stalled_flows(tenant=ALL_TENANTS, before=at(9)) == []

    def test_a_flow_without_progress_is_found_among_many(self, store: Store) -> None:
        many = sorted(start(store, ["a"], {})["flow"] for _ in range(60))
        assert store.stalled_flows(tenant="default", before=at(0)) == []
        assert [flow.id for flow in store.stalled_flows(tenant="default", before=at(9))] == many
        assert [flow.id for flow in store.stalled_flows(tenant="default", before=at(9), limit=2)] == many[:2]

    def test_a_job_whose_need_runs_again_is_no_longer_unreachable(self, store: Store) -> None:
        ids = start(store, ["a", "b"], {"b": {"a": C.SUCCESS}})
        assert store.still_unreachable([ids["b"]]) == frozenset()
        run(store, ids["a"], FAILED)
        assert store.still_unreachable([ids["a"], ids["b"]]) == {ids["b"]}
        store.move([Move(ids["a"], "default", frozenset({S.FAILED}), S.PENDING, restart=True)], now=at(2))
        assert store.still_unreachable([ids["b"]]) == frozenset()
