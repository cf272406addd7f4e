"""Laws of liveness: workers and their beats, orphans, overdue jobs, and named leases."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from tidemill.domain.cluster import Pulse, Worker, WorkerState
from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.states import HELD, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    CRASHED,
    HOUR,
    OTHER,
    SECOND,
    T0,
    TICK,
    UNHELD,
    WORKER,
    a_job,
    at,
    bring,
    claim_all,
    claim_one,
    finish_all,
    get_one,
    ids_of,
    patiently,
    put,
    put_one,
    register,
    snapshot,
    together,
)

S = JobState
LEASE = 30 * SECOND


class WorkerLaws:
    """One row per worker, and no way back from an expired lease."""

    def test_a_registered_worker_is_written_down_whole(self, store: Store) -> None:
        worker = Worker(
            *(WORKER, "w “1” 🦊", "host", 4711, "node-1", "1.2.3", ("mail", "%s"), ("a.b", "c"), 16),
            WorkerState.ACTIVE,
        )
        written = store.register(worker, lease=LEASE, now=T0)
        assert replace(written, beats=0) == replace(worker, started_at=T0, beat_at=T0, expires_at=T0 + LEASE)
        assert store.workers() == [written]

    def test_workers_come_newest_first(self, store: Store) -> None:
        ids = [new_id() for _ in range(4)]
        for n, id in enumerate(ids):
            register(store, id, now=at(n))
        assert ids_of(store.workers()) == ids[::-1]

    def test_a_beat_renews_and_counts(self, store: Store) -> None:
        register(store, WORKER, lease=LEASE)
        (before,) = store.workers()
        assert store.beat([WORKER], lease=LEASE, now=at(29)) == Pulse(frozenset({WORKER}), frozenset(), [])
        (after,) = store.workers()
        assert after == replace(before, beat_at=at(29), expires_at=at(59), beats=before.beats + 1)

    def test_an_expired_worker_is_not_revived(self, store: Store) -> None:
        register(store, WORKER, OTHER, lease=LEASE)
        store.beat([OTHER], lease=LEASE, now=at(20))
        before = store.workers()
        pulse = store.beat([WORKER, OTHER, new_id()], lease=LEASE, now=at(31))
        assert pulse.alive == {OTHER}
        mine = next(worker for worker in store.workers() if worker.id == WORKER)
        assert mine in before
        assert store.beat([WORKER], lease=LEASE, now=at(32)).alive == frozenset()

    @pytest.mark.parametrize("moment", [T0 + LEASE - TICK, T0 + LEASE, T0 + LEASE + TICK])
    def test_at_every_moment_a_worker_is_alive_or_its_jobs_are_orphans(
        self, store: Store, moment: datetime
    ) -> None:
        register(store, WORKER, lease=LEASE)
        claim_one(store, put_one(store))
        orphaned = bool(store.orphans(10, now=moment))
        alive = bool(store.beat([WORKER], lease=LEASE, now=moment).alive)
        assert orphaned != alive
        assert alive or moment != T0 + LEASE - TICK

    def test_a_retired_worker_is_gone_at_once(self, store: Store) -> None:
        register(store, WORKER, OTHER, lease=LEASE)
        claim = claim_one(store, put_one(store))
        store.retire([WORKER], now=at(1))
        assert store.beat([WORKER, OTHER], lease=LEASE, now=at(1)).alive == {OTHER}
        assert ids_of(store.orphans(10, now=at(1))) == [claim.id]
        mine = next(worker for worker in store.workers() if worker.id == WORKER)
        assert (mine.state, mine.expires_at) == (WorkerState.STOPPED, at(1))

    def test_a_worker_learns_with_its_next_beat_that_it_is_to_drain(self, store: Store) -> None:
        register(store, WORKER, OTHER, lease=LEASE)
        assert store.drain([WORKER, new_id()]) == {WORKER}
        assert store.beat([WORKER, OTHER], lease=LEASE, now=at(1)) == Pulse(
            frozenset({WORKER, OTHER}), frozenset({WORKER}), []
        )
        assert store.beat([WORKER], lease=LEASE, now=at(2)).draining == {WORKER}
        states = {worker.id: worker.state for worker in store.workers()}
        assert states == {WORKER: WorkerState.DRAINING, OTHER: WorkerState.ACTIVE}

    def test_only_active_workers_are_asked_to_drain(self, store: Store) -> None:
        register(store, WORKER, OTHER, lease=LEASE)
        store.retire([OTHER], now=at(1))
        assert store.drain([WORKER, OTHER]) == {WORKER}
        assert store.drain([WORKER]) == frozenset()
        states = {worker.id: worker.state for worker in store.workers()}
        assert states == {WORKER: WorkerState.DRAINING, OTHER: WorkerState.STOPPED}

    def test_sweep_removes_workers_long_gone_that_hold_nothing(self, store: Store) -> None:
        idle, busy, fresh, alive = (new_id() for _ in range(4))
        register(store, idle, busy, lease=LEASE)
        register(store, fresh, lease=LEASE, now=at(3000))
        register(store, alive, lease=100 * HOUR)
        claim = claim_one(store, put_one(store), worker=busy)
        assert store.sweep(HOUR, now=at(3700)) == 1
        assert {worker.id for worker in store.workers()} == {busy, fresh, alive}
        finish_all(store, [claim], CRASHED)
        assert store.sweep(HOUR, now=at(3700)) == 1
        assert store.sweep(HOUR, now=at(3700)) == 0
        assert {worker.id for worker in store.workers()} == {fresh, alive}


class OrphanLaws:
    """What dead workers hold is found, and nothing more."""

    @pytest.mark.parametrize("state", sorted(HELD))
    def test_a_job_of_an_expired_worker_is_an_orphan(self, store: Store, state: JobState) -> None:
        register(store, WORKER, lease=LEASE)
        job = bring(store, state, limits=("l",), args='{"a":1}')
        assert store.orphans(10, now=at(29)) == []
        before = snapshot(store, job.id)
        (orphan,) = store.orphans(10, now=at(31))
        assert (orphan.id, orphan.token, orphan.attempt, orphan.crashes) == (job.id, 1, 1, 0)
        assert (orphan.worker, orphan.state, orphan.max_attempts) == (WORKER, state, 4)
        assert (orphan.args, orphan.limits, orphan.queue, orphan.tenant) == (
            '{"a":1}',
            ("l",),
            job.queue,
            "default",
        )
        assert snapshot(store, job.id) == before

    def test_a_job_of_a_worker_nobody_knows_is_an_orphan(self, store: Store) -> None:
        claim = claim_one(store, put_one(store), worker=new_id())
        assert ids_of(store.orphans(10, now=T0)) == [claim.id]

    @pytest.mark.parametrize("state", UNHELD)
    def test_a_job_nobody_holds_is_no_orphan(self, store: Store, state: JobState) -> None:
        bring(store, state)
        assert store.orphans(10, now=at(10**6)) == store.overdue(10, now=at(10**6)) == []

    def test_orphans_come_by_their_claim_within_the_limit(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(3)])
        lane = Lane("default", "default", 0)
        for n in range(3):
            store.claim(ClaimRequest(WORKER, [lane], 1), now=at(n))
        assert ids_of(store.orphans(10, now=at(9))) == ids
        assert ids_of(store.orphans(2, now=at(9))) == ids[:2]

    def test_an_orphan_is_finished_like_any_claim_and_once(self, store: Store) -> None:
        mine = claim_one(store, put_one(store))
        (orphan,) = store.orphans(10, now=at(99))
        assert store.finish([Finish(orphan, CRASHED)], now=at(99)) == frozenset()
        assert store.finish([Finish(orphan, CRASHED)], now=at(99)) == {mine.id}
        assert store.finish([Finish(mine, COMPLETED)], now=at(99)) == {mine.id}
        assert store.orphans(10, now=at(99)) == []
        assert (get_one(store, mine.id).state, get_one(store, mine.id).crashes) == (S.PENDING, 1)

    def test_one_worker_dead_does_not_make_orphans_of_anothers_jobs(self, store: Store) -> None:
        register(store, WORKER, lease=LEASE)
        register(store, OTHER, lease=HOUR)
        put(store, a_job(), a_job())
        dead, _ = claim_all(store, limit=1) + claim_all(store, worker=OTHER)
        assert ids_of(store.orphans(10, now=at(31))) == [dead.id]

    def test_overdue_are_the_running_jobs_past_their_timeout_longest_first(self, store: Store) -> None:
        bring(store, S.RUNNING, timeout=100 * SECOND)
        slow = bring(store, S.RUNNING, timeout=10 * SECOND)
        slower = bring(store, S.RUNNING, timeout=50 * SECOND, now=at(-60))
        bring(store, S.RUNNING, timeout=None)
        bring(store, S.CLAIMED, timeout=SECOND)
        before = snapshot(store, slow.id)
        assert store.overdue(10, now=at(9) - 20 * SECOND) == []
        assert ids_of(store.overdue(10, now=at(15))) == [slower.id, slow.id]
        assert ids_of(store.overdue(1, now=at(15))) == [slower.id]
        (overdue, *_) = store.overdue(10, now=at(15))
        assert (overdue.token, overdue.worker, overdue.timeout) == (1, WORKER, 50 * SECOND)
        assert snapshot(store, slow.id) == before

    def test_the_timeout_counts_from_the_start_and_not_from_the_claim(self, store: Store) -> None:
        claim = claim_one(store, put_one(store, timeout=10 * SECOND), start=False)
        store.start([claim], now=at(100))
        assert store.overdue(10, now=at(109)) == []
        assert ids_of(store.overdue(10, now=at(111))) == [claim.id]


class LeaseLaws:
    """A named lease has one holder, and its term tells holders apart."""

    def test_a_free_lease_is_taken_with_a_term(self, store: Store) -> None:
        lease = store.acquire("duty", WORKER, ttl=10 * SECOND, now=T0)
        assert lease is not None
        assert (lease.name, lease.holder, lease.term) == ("duty", WORKER, 1)
        assert (lease.acquired_at, lease.expires_at) == (T0, at(10))
        assert store.leases() == [lease]

    def test_a_held_lease_is_refused_to_others(self, store: Store) -> None:
        store.acquire("duty", WORKER, ttl=10 * SECOND, now=T0)
        before = store.leases()
        assert store.acquire("duty", OTHER, ttl=10 * SECOND, now=at(9)) is None
        assert store.leases() == before

    def test_acquiring_what_one_holds_renews_it_and_keeps_the_term(self, store: Store) -> None:
        store.acquire("duty", WORKER, ttl=10 * SECOND, now=T0)
        again = store.acquire("duty", WORKER, ttl=10 * SECOND, now=at(5))
        assert again is not None
        assert (again.term, again.expires_at) == (1, at(15))
        assert store.acquire("duty", OTHER, ttl=10 * SECOND, now=at(12)) is None

    def test_a_lease_that_ran_out_goes_to_another_with_the_next_term(self, store: Store) -> None:
        store.acquire("duty", WORKER, ttl=10 * SECOND, now=T0)
        lease = store.acquire("duty", OTHER, ttl=10 * SECOND, now=at(11))
        assert lease is not None
        assert (lease.holder, lease.term) == (OTHER, 2)
        assert not store.renew("duty", WORKER, 1, ttl=10 * SECOND, now=at(11))
        assert not store.release("duty", WORKER, 1)
        assert store.renew("duty", OTHER, 2, ttl=10 * SECOND, now=at(12))

    def test_renewing_holds_on_and_keeps_what_is_said_about_it(self, store: Store) -> None:
        store.acquire("duty", WORKER, ttl=10 * SECOND, now=T0)
        about = {"cursor": "a\\b “c” 🦊", "n": [1, None, 2.5]}
        assert store.renew("duty", WORKER, 1, ttl=10 * SECOND, metadata=about, now=at(9))
        (lease,) = store.leases()
        assert (lease.term, lease.expires_at, dict(lease.metadata)) == (1, at(19), about)
        assert store.acquire("duty", OTHER, ttl=10 * SECOND, now=at(15)) is None

    def test_renewing_fails_when_it_is_not_ours_any_more(self, store: Store) -> None:
        store.acquire("duty", WORKER, ttl=10 * SECOND, now=T0)
        before = store.leases()
        assert not store.renew("duty", OTHER, 1, ttl=HOUR, now=at(1))
        assert not store.renew("duty", WORKER, 2, ttl=HOUR, now=at(1))
        assert not store.renew("other", WORKER, 1, ttl=HOUR, now=at(1))
        assert not store.renew("duty", WORKER, 1, ttl=HOUR, now=at(11))
        assert store.leases() == before

    def test_a_released_lease_is_free_at_once_and_its_term_is_spent(self, store: Store) -> None:
        store.acquire("duty", WORKER, ttl=HOUR, now=T0)
        assert not store.release("duty", OTHER, 1)
        assert not store.release("duty", WORKER, 2)
        assert store.release("duty", WORKER, 1)
        assert not store.release("duty", WORKER, 1)
        assert not store.renew("duty", WORKER, 1, ttl=HOUR, now=at(1))
        lease = store.acquire("duty", OTHER, ttl=HOUR, now=at(1))
        assert lease is not None
        assert (lease.holder, lease.term) == (OTHER, 2)

    def test_leases_are_told_apart_and_listed_by_name(self, store: Store) -> None:
        for name in ("c", "a", "b"):
            assert store.acquire(name, WORKER, ttl=HOUR, now=T0) is not None
        assert [lease.name for lease in store.leases()] == ["a", "b", "c"]

    def test_of_many_who_reach_for_a_lease_exactly_one_gets_it(self, store: Store) -> None:
        holders = [new_id() for _ in range(6)]
        for term in range(1, 6):
            now = T0 + term * timedelta(minutes=1)
            reach = [
                partial(patiently, store.acquire, "duty", holder, ttl=SECOND, now=now) for holder in holders
            ]
            (lease,) = [each for each in together(reach) if each is not None]
            assert lease.term <= term
            assert [each.holder for each in store.leases()] == [lease.holder]
