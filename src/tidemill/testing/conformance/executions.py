"""Laws of task statistics: latest ended jobs, and open jobs by state."""

from __future__ import annotations

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Move
from tidemill.domain.states import ENDED, JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import SECOND, a_job, at, bring, put
from tidemill.testing.conformance.stats import end

S = JobState


class LatelyLaws:
    """The latest ended jobs of a task."""

    def test_a_task_without_ended_jobs_has_none(self, store: Store) -> None:
        for state in sorted(set(S) - ENDED):
            bring(store, state)
        assert store.lately(["work", "nothing"], tenant=ALL_TENANTS) == []
        assert store.lately([], tenant=ALL_TENANTS) == []

    def test_ended_jobs_are_returned_with_their_times(self, store: Store) -> None:
        first = end(store, waits=2, takes=10)
        second = end(store, S.FAILED, waits=1, takes=3)
        assert store.lately(["work"], tenant=ALL_TENANTS) == [
            ("work", second, S.FAILED, at(4), 3 * SECOND, 1 * SECOND),
            ("work", first, S.COMPLETED, at(12), 10 * SECOND, 2 * SECOND),
        ]

    def test_a_job_that_never_ran_has_no_times(self, store: Store) -> None:
        job = bring(store, S.PENDING)
        store.move([Move(job.id, job.tenant, frozenset({S.PENDING}), S.CANCELLED, "not wanted")], now=at(5))
        (latest,) = store.lately(["work"], tenant=ALL_TENANTS)
        assert latest[2:] == (S.CANCELLED, at(5), None, None)

    def test_each_task_has_its_own_latest(self, store: Store) -> None:
        for task in ("b", "a", "b", "c", "b"):
            end(store, task=task)
        latest = store.lately(["b", "a", "a", "none"], tenant=ALL_TENANTS, per_task=2)
        assert [row.task for row in latest] == ["a", "b", "b"]
        assert latest[1].id > latest[2].id
        assert store.lately(["b"], tenant=ALL_TENANTS, per_task=0) == []

    def test_a_tenant_sees_its_own_jobs_among_the_latest(self, store: Store) -> None:
        own = end(store, tenant="a")
        other = end(store, tenant="b")
        assert [row.id for row in store.lately(["work"], tenant="a")] == [own]
        assert [row.id for row in store.lately(["work"], tenant="b", per_task=1)] == [other]
        assert store.lately(["work"], tenant="a", per_task=1) == []


class TaskCrowdLaws:
    """Open jobs by task."""

    def test_open_jobs_are_counted_by_task_and_state(self, store: Store) -> None:
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

    def test_ended_jobs_are_not_counted_as_open(self, store: Store) -> None:
        assert store.crowd(tenant=ALL_TENANTS) == ({}, False)
        bring(store, S.COMPLETED)
        assert store.crowd(tenant=ALL_TENANTS) == ({}, False)

    def test_a_tenant_sees_counts_of_its_own_jobs(self, store: Store) -> None:
        put(store, a_job(tenant="a"), a_job(tenant="b"), a_job(tenant="b"), now=at(1))
        assert store.crowd(tenant="b").counts == {"work": {S.PENDING: 2}}
        assert store.crowd(tenant="c") == ({}, False)

    def test_counts_of_a_sample_are_marked_as_sampled(self, store: Store) -> None:
        put(store, *(a_job() for _ in range(3)), now=at(1))
        bring(store, S.SCHEDULED)
        crowd = store.crowd(tenant=ALL_TENANTS, look=2)
        assert crowd == ({"work": {S.PENDING: 2, S.SCHEDULED: 1}}, True)
        assert store.crowd(tenant="nobody", look=2) == ({}, True)
        assert store.crowd(tenant=ALL_TENANTS, look=4).sampled is False


class BacklogLaws:
    """Pending jobs of tasks that nobody knows."""

    def test_pending_jobs_of_other_tasks_are_counted_exactly(self, store: Store) -> None:
        put(store, *(a_job(task="renamed") for _ in range(3)), a_job(task="known"), now=at(2))
        put(store, a_job(task="typo"), a_job(task="renamed", queue="mail"), now=at(1))
        assert store.backlogs(tenant=ALL_TENANTS, served={"known", "other"}) == [
            ("renamed", 4, at(1)),
            ("typo", 1, at(1)),
        ]
        assert store.backlogs(tenant=ALL_TENANTS, served={"known", "renamed", "typo"}) == []
        assert [row.task for row in store.backlogs(tenant=ALL_TENANTS, served=())] == [
            "renamed",
            "typo",
            "known",
        ]

    def test_only_pending_jobs_are_a_backlog(self, store: Store) -> None:
        for state in set(S) - {S.PENDING}:
            bring(store, state)
        assert store.backlogs(tenant=ALL_TENANTS, served=()) == []
        bring(store, S.PENDING)
        assert [row[:2] for row in store.backlogs(tenant=ALL_TENANTS, served=())] == [("work", 1)]

    def test_a_tenant_sees_its_own_backlog(self, store: Store) -> None:
        put(store, a_job(tenant="a"), a_job(tenant="b"), a_job(tenant="b"), now=at(1))
        assert store.backlogs(tenant="b", served=()) == [("work", 2, at(1))]
        assert store.backlogs(tenant="c", served=()) == []
