"""Laws of current statistics: queue depths and held jobs."""

from __future__ import annotations

from datetime import timedelta

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish, Progress, ProgressReport
from tidemill.domain.states import JobState
from tidemill.domain.stats import HeldSelection
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    CRASHED,
    HOUR,
    OTHER,
    SECOND,
    T0,
    WORKER,
    a_job,
    at,
    bring,
    claim_all,
    claim_one,
    put,
    put_one,
    register,
)

S = JobState
MINUTE = timedelta(minutes=1)


class DepthLaws:
    """Pending jobs by queue, and the oldest of them."""

    def test_a_queue_without_pending_jobs_has_no_depth(self, store: Store) -> None:
        for state in sorted(set(S) - {S.PENDING}):
            bring(store, state)
        assert store.depths(tenant=ALL_TENANTS, now=T0) == []

    def test_pending_jobs_are_counted_by_queue(self, store: Store) -> None:
        put(store, a_job(queue="b"), a_job(queue="b", tenant="t", priority=3), now=at(5))
        put(store, a_job(queue="b", priority=9), now=at(3))
        put(store, a_job(queue="a"), now=at(7))
        assert store.depths(tenant=ALL_TENANTS, now=at(9)) == [("a", 1, 0, at(7)), ("b", 3, 0, at(3))]
        assert store.depths(tenant="t", now=at(9)) == [("b", 1, 0, at(5))]

    def test_the_oldest_job_is_found_across_all_lanes(self, store: Store) -> None:
        put(store, a_job(), a_job(limits=("x",)), now=at(7))
        put(store, a_job(limits=("y",), run_at=at(3)), a_job(limits=("x",), run_at=at(1)), now=at(8))
        put(store, a_job(tenant="t", limits=("y",), run_at=at(5)), now=at(8))
        assert store.depths(tenant=ALL_TENANTS, now=at(9)) == [("default", 5, 0, at(3))]
        assert store.depths(tenant="t", now=at(9)) == [("default", 1, 0, at(5))]

    def test_due_jobs_before_promotion_count_as_late(self, store: Store) -> None:
        put(store, a_job(queue="a", run_at=at(60)), a_job(queue="a", run_at=at(61)), a_job(queue="a"))
        assert store.depths(tenant=ALL_TENANTS, now=at(60)) == [("a", 1, 1, T0)]
        claim_all(store)
        assert store.depths(tenant=ALL_TENANTS, now=at(60)) == [("a", 0, 1, at(60))]
        assert store.depths(tenant="nobody", now=at(60)) == []

    def test_a_promoted_job_is_no_longer_late(self, store: Store) -> None:
        put_one(store, run_at=at(60))
        store.promote(10, now=at(70))
        assert store.depths(tenant=ALL_TENANTS, now=at(80)) == [("default", 1, 0, at(60))]


class HoldingLaws:
    """Held jobs and the state of their workers."""

    def test_a_held_job_is_returned_with_its_worker(self, store: Store) -> None:
        (worker,) = register(store, WORKER, lease=HOUR)
        id = put_one(store, "t", queue="q", tenant="a", timeout=MINUTE)
        claim_one(store, id, now=at(4), start=False)
        (held,) = store.holding(HeldSelection.ALL, tenant=ALL_TENANTS, now=at(5))
        expected = (
            id, "t", "q", "a", S.CLAIMED, 1, MINUTE, WORKER, worker.name, at(4), None, T0, T0 + HOUR, None,
        )  # fmt: skip
        assert held == expected
        store.start(store.held(WORKER), now=at(6))
        (held,) = store.holding(HeldSelection.ALL, tenant="a", now=at(5))
        assert (held.state, held.started_at) == (S.RUNNING, at(6))
        assert store.holding(HeldSelection.ALL, tenant="b", now=at(5)) == []

    def test_a_held_job_is_told_with_the_time_of_its_last_progress(self, store: Store) -> None:
        claim = claim_one(store, put_one(store), now=at(4))
        store.report([ProgressReport(claim.id, claim.token, claim.worker, Progress(0.5))], now=at(9))
        (held,) = store.holding(HeldSelection.ALL, tenant=ALL_TENANTS, now=at(10))
        assert (held.progress_at, held.heard_at) == (at(9), at(9))

    def test_jobs_past_their_timeout_are_overdue(self, store: Store) -> None:
        id = put_one(store, timeout=MINUTE)
        put_one(store, timeout=HOUR)
        put_one(store, timeout=None)
        claim_all(store)
        put_one(store, timeout=SECOND)
        claim_all(store, start=False)
        for seconds, expected in ((59.999999, []), (60, [id])):
            rows = store.holding(HeldSelection.OVERDUE, tenant=ALL_TENANTS, now=at(seconds))
            assert [held.id for held in rows] == expected
            assert [claim.id for claim in store.overdue(10, now=at(seconds))] == expected

    def test_jobs_of_a_stopped_worker_are_orphaned(self, store: Store) -> None:
        register(store, WORKER, lease=MINUTE)
        register(store, OTHER, lease=HOUR)
        mine, foreign = put_one(store, queue="a"), put_one(store, queue="b")
        claim_one(store, mine, queues=["a"])
        claim_one(store, foreign, queues=["b"], worker=OTHER)
        store.retire([OTHER], now=at(30))
        (held,) = store.holding(HeldSelection.ORPHANED, tenant=ALL_TENANTS, now=at(59))
        assert (held.id, held.worker_name, held.beat_at, held.expires_at) == (
            foreign,
            f"w-{OTHER}",
            at(30),
            at(30),
        )
        rows = store.holding(HeldSelection.ORPHANED, tenant=ALL_TENANTS, now=at(60))
        assert [held.id for held in rows] == [mine, foreign]
        assert rows[0].beat_at == T0

    def test_long_held_jobs_come_oldest_first(self, store: Store) -> None:
        ids = []
        for seconds in (20, 0, 10):
            ids.append(put_one(store))
            claim_one(store, ids[-1], now=at(seconds))
        rows = store.holding(HeldSelection.ALL, tenant=ALL_TENANTS, longer_than=50 * SECOND, now=at(60))
        assert [held.id for held in rows] == [ids[1], ids[2]]
        rows = store.holding(HeldSelection.ALL, tenant=ALL_TENANTS, limit=1, now=at(60))
        assert [held.id for held in rows] == [ids[1]]

    def test_held_jobs_are_counted_by_worker(self, store: Store) -> None:
        for worker, seconds, start in (
            (OTHER, 5, True),
            (WORKER, 1, True),
            (WORKER, 3, False),
            (WORKER, 2, True),
        ):
            claim_one(store, put_one(store, tenant="a"), now=at(seconds), worker=worker, start=start)
        bring(store, S.COMPLETED)
        assert store.holders(tenant=ALL_TENANTS) == [
            (WORKER, 1, 2, at(1), at(3)),
            (OTHER, 0, 1, at(5), at(5)),
        ]
        assert store.holders(tenant="b") == []

    def test_a_released_job_has_no_holder(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.finish([Finish(claim, CRASHED)], now=at(1))
        assert (store.holders(tenant=ALL_TENANTS), store.holding(HeldSelection.ALL, tenant=ALL_TENANTS)) == (
            [],
            [],
        )
