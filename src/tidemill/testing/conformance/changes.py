"""Laws of changing the queue and the priority of jobs that wait to run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import CHANGEABLE, Change
from tidemill.domain.lanes import LaneKey
from tidemill.domain.limits import gate_of
from tidemill.domain.states import JobState
from tidemill.errors import IllegalTransition
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import a_job, bring, claim_all, get_one, ids_of, put, put_one, snapshot

S = JobState


def _change(store: Store, id: object, **to: object) -> frozenset[object]:
    return store.change([Change(id, ALL_TENANTS, CHANGEABLE, **to)])  # type: ignore[arg-type]


class ChangeLaws:
    """A job that waits to run gets another queue or priority, if it is where it was seen."""

    @pytest.mark.parametrize("state", sorted(CHANGEABLE))
    @pytest.mark.parametrize("to", [{"queue": "fast"}, {"priority": 9}, {"queue": "fast", "priority": -100}])
    def test_queue_and_priority_change_and_nothing_else(
        self, store: Store, state: JobState, to: dict[str, object]
    ) -> None:
        before = bring(store, state, queue="slow", priority=1, limits=("a",))
        assert _change(store, before.id, **to) == {before.id}
        assert get_one(store, before.id) == replace(before, **to)  # type: ignore[arg-type]

    @pytest.mark.parametrize("state", sorted(set(JobState) - CHANGEABLE))
    def test_a_job_in_any_other_state_stays_as_it_is(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        before = snapshot(store, job.id)
        assert _change(store, job.id, queue="fast", priority=9) == frozenset()
        assert snapshot(store, job.id) == before
        with pytest.raises(IllegalTransition):
            Change(job.id, "default", frozenset({state}), "fast")

    @pytest.mark.parametrize("state", sorted(CHANGEABLE))
    def test_a_job_that_is_not_where_it_was_seen_stays_as_it_is(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        (other,) = CHANGEABLE - {state}
        assert store.change([Change(job.id, "default", frozenset({other}), "fast", 9)]) == frozenset()
        assert get_one(store, job.id) == job

    def test_a_job_of_another_tenant_stays_as_it_is(self, store: Store) -> None:
        id = put_one(store, tenant="a")
        assert store.change([Change(id, "b", CHANGEABLE, "fast")]) == frozenset()
        assert store.change([Change(new_id(), ALL_TENANTS, CHANGEABLE, "fast")]) == frozenset()
        assert get_one(store, id).queue == "default"

    def test_each_job_of_a_batch_gets_its_own(self, store: Store) -> None:
        first, second, third = put(store, a_job(), a_job(), a_job())
        gone = new_id()
        changes = [
            Change(third, "default", CHANGEABLE, priority=3),
            Change(gone, "default", CHANGEABLE, priority=4),
            Change(first, "default", CHANGEABLE, queue="fast"),
        ]
        assert store.change(changes) == {first, third}
        found = [(job.queue, job.priority) for job in store.get([first, second, third], tenant="default")]
        assert found == [("fast", 0), ("default", 0), ("default", 3)]

    def test_a_changed_job_stands_in_its_new_lane_and_no_longer_in_the_old_one(self, store: Store) -> None:
        id = put_one(store, queue="slow")
        _change(store, id, queue="fast", priority=7)
        assert [lane.key for lane in store.lanes()] == [LaneKey("fast", "default", 7)]
        limited = put_one(store, queue="slow", limits=("a",))
        _change(store, limited, queue="fast", priority=7)
        assert [lane.key for lane in store.gates()] == [LaneKey("fast", "default", 7, gate_of(("a",)))]

    def test_a_changed_job_comes_before_jobs_that_became_pending_after_it(self, store: Store) -> None:
        old, *young = put(store, a_job(queue="slow"), *[a_job(queue="fast") for _ in range(3)])
        _change(store, old, queue="fast")
        assert ids_of(claim_all(store)) == [old, *young]

    def test_a_changed_priority_decides_who_comes_first(self, store: Store) -> None:
        first, second, third = put(store, a_job(), a_job(), a_job())
        _change(store, third, priority=10)
        assert ids_of(claim_all(store)) == [third, first, second]
