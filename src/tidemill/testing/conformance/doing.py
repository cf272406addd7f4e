"""Laws of what is asked of tasks: how their latest jobs ended, and how many have not ended."""

from __future__ import annotations

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Move
from tidemill.domain.states import ENDED, JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.insight import end
from tidemill.testing.conformance.kit import SECOND, a_job, at, bring, put

S = JobState


class LatelyLaws:
    """The latest of a task's ended jobs."""

    def test_a_task_without_ended_jobs_has_none(self, store: Store) -> None:
        for state in sorted(set(S) - ENDED):
            bring(store, state)
        assert store.lately(["work", "nothing"], tenant=ALL_TENANTS) == []
        assert store.lately([], tenant=ALL_TENANTS) == []

    def test_ended_jobs_are_told_with_their_times(self, store: Store) -> None:
        first = end(store, waits=2, takes=10)
        second = end(store, S.FAILED, waits=1, takes=3)
        assert store.lately(["work"], tenant=ALL_TENANTS) == [
            ("work", second, S.FAILED, at(4), 3 * SECOND, 1 * SECOND),
            ("work", first, S.COMPLETED, at(12), 10 * SECOND, 2 * SECOND),
        ]

    def test_a_job_that_never_ran_has_no_times(self, store: Store) -> None:
        job = bring(store, S.PENDING)
        store.move([Move(job.id, job.tenant, frozenset({S.PENDING}), S.CANCELLED, "not wanted")], now=at(5))
        (found,) = store.lately(["work"], tenant=ALL_TENANTS)
        assert found[2:] == (S.CANCELLED, at(5), None, None)

    def test_each_task_has_its_own_latest(self, store: Store) -> None:
        for task in ("b", "a", "b", "c", "b"):
            end(store, task=task)
        found = store.lately(["b", "a", "a", "none"], tenant=ALL_TENANTS, each=2)
        assert [each.task for each in found] == ["a", "b", "b"]
        assert found[1].id > found[2].id
        assert store.lately(["b"], tenant=ALL_TENANTS, each=0) == []

    def test_a_tenant_is_told_of_its_own_among_the_latest(self, store: Store) -> None:
        own = end(store, tenant="a")
        other = end(store, tenant="b")
        assert [each.id for each in store.lately(["work"], tenant="a")] == [own]
        assert [each.id for each in store.lately(["work"], tenant="b", each=1)] == [other]
        assert store.lately(["work"], tenant="a", each=1) == []


class TaskCrowdLaws:
    """What has not ended, by task."""

    def test_jobs_that_have_not_ended_are_counted_by_task_and_state(self, store: Store) -> None:
        for state in S:
            bring(store, state)
        put(store, a_job(), a_job(task="other"), now=at(1))
        assert store.crowd(tenant=ALL_TENANTS) == (
            {
                "work": {state: 2 if state is S.PENDING else 1 for state in set(S) - ENDED},
                "other": {S.PENDING: 1},
            },
            False,
        )

    def test_nothing_is_counted_where_nothing_is(self, store: Store) -> None:
        assert store.crowd(tenant=ALL_TENANTS) == ({}, False)
        bring(store, S.COMPLETED)
        assert store.crowd(tenant=ALL_TENANTS) == ({}, False)

    def test_a_tenant_is_told_of_its_own(self, store: Store) -> None:
        put(store, a_job(tenant="a"), a_job(tenant="b"), a_job(tenant="b"), now=at(1))
        assert store.crowd(tenant="b").counts == {"work": {S.PENDING: 2}}
        assert store.crowd(tenant="c") == ({}, False)

    def test_where_there_are_more_than_are_looked_at_it_is_said(self, store: Store) -> None:
        put(store, *(a_job() for _ in range(3)), now=at(1))
        bring(store, S.SCHEDULED)
        found = store.crowd(tenant=ALL_TENANTS, look=2)
        assert found == ({"work": {S.PENDING: 2, S.SCHEDULED: 1}}, True)
        assert store.crowd(tenant="nobody", look=2) == ({}, True)
        assert store.crowd(tenant=ALL_TENANTS, look=4).sampled is False
