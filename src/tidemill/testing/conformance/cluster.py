"""Laws of workers, heartbeats, orphans, overdue jobs and named leases."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from tidemill.domain.cluster import Heartbeat, Pulse, Worker, WorkerState, duty_lease_name
from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish
from tidemill.domain.lanes import Lane
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
    asks,
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
    """One row per worker; a worker that was declared gone never comes back."""

    def test_register_stores_every_field_of_a_worker(self, store: Store) -> None:
        worker = Worker(
            *(WORKER, "w “1” 🦊", "host", 4711, "node-1", "1.2.3", ("mail", "%s"), ("a.b", "c"), 16),
            WorkerState.ACTIVE,
        )
        written = store.register(worker, lease=LEASE, now=T0)
        assert replace(written, beats=0) == replace(worker, started_at=T0, beat_at=T0, expires_at=T0 + LEASE)
        assert store.workers() == [written]

    def test_workers_are_listed_newest_first(self, store: Store) -> None:
        ids = [new_id() for _ in range(4)]
        for n, id in enumerate(ids):
            register(store, id, now=at(n))
        assert ids_of(store.workers()) == ids[::-1]

    def test_a_heartbeat_renews_the_lease_and_is_counted(self, store: Store) -> None:
        register(store, WORKER, lease=LEASE)
        (before,) = store.workers()
        assert store.beat([WORKER], lease=LEASE, now=at(29)) == Pulse(frozenset({WORKER}), frozenset(), [])
        (after,) = store.workers()
        assert after == replace(before, beat_at=at(29), expires_at=at(59), beats=before.beats + 1)

    def test_a_heartbeat_renews_an_expired_lease(self, store: Store) -> None:
        register(store, WORKER, lease=LEASE)
        claim_one(store, put_one(store))
        assert store.beat([WORKER], lease=LEASE, now=at(3600)).alive == {WORKER}
        (worker,) = store.workers()
        assert (worker.state, worker.expires_at, worker.beats) == (WorkerState.ACTIVE, at(3630), 1)
        assert store.orphans(10) == []

    def test_a_heartbeat_after_a_clock_step_back_shortens_the_lease(self, store: Store) -> None:
        register(store, WORKER, lease=LEASE)
        assert store.beat([WORKER], lease=LEASE, now=at(-3600)).alive == {WORKER}
        (worker,) = store.workers()
        assert (worker.beat_at, worker.expires_at) == (at(-3600), at(-3570))

    def test_a_worker_declared_gone_is_not_revived(self, store: Store) -> None:
        register(store, WORKER, OTHER, lease=LEASE)
        assert store.declare_gone([(WORKER, 0)], now=at(1)) == {WORKER}
        before = [worker for worker in store.workers() if worker.id == WORKER]
        assert (before[0].state, before[0].expires_at) == (WorkerState.STOPPED, at(1))
        for seconds in (1, 2, 3600):
            assert store.beat([WORKER, OTHER, new_id()], lease=LEASE, now=at(seconds)).alive == {OTHER}
        assert [worker for worker in store.workers() if worker.id == WORKER] == before

    def test_a_worker_with_a_newer_heartbeat_is_not_declared_gone(self, store: Store) -> None:
        stale, silent, gone = (new_id() for _ in range(3))
        register(store, stale, silent, gone, lease=LEASE)
        seen = [(beat.worker, beat.beats) for beat in store.heartbeats(now=at(31))]
        store.retire([gone], now=at(1))
        store.beat([stale], lease=LEASE, now=at(31))
        assert store.declare_gone([*seen, (new_id(), 0)], now=at(32)) == {silent}
        assert store.declare_gone(seen, now=at(32)) == frozenset()
        assert store.declare_gone([], now=at(32)) == frozenset()
        states = {worker.id: worker.state for worker in store.workers()}
        assert states == {
            stale: WorkerState.ACTIVE,
            silent: WorkerState.STOPPED,
            gone: WorkerState.STOPPED,
        }

    def test_declaring_a_worker_gone_never_extends_its_lease(self, store: Store) -> None:
        register(store, WORKER, lease=LEASE)
        store.declare_gone([(WORKER, 0)], now=at(100))
        assert [worker.expires_at for worker in store.workers()] == [at(30)]

    def test_heartbeats_show_counters_and_leases_of_live_workers(self, store: Store) -> None:
        first, second, gone, drained = sorted(new_id() for _ in range(4))
        register(store, gone, second, first, lease=LEASE)
        register(store, drained, lease=HOUR)
        store.drain([drained])
        store.retire([gone], now=at(1))
        store.beat([second], lease=10 * SECOND, now=at(3))
        store.beat([second], lease=10 * SECOND, now=at(4))
        assert store.heartbeats(now=at(20)) == [
            Heartbeat(first, 0, LEASE, 10 * SECOND),
            Heartbeat(second, 2, 10 * SECOND, -6 * SECOND),
            Heartbeat(drained, 0, HOUR, HOUR - 20 * SECOND),
        ]

    @pytest.mark.parametrize("moment", [T0 + LEASE - TICK, T0 + LEASE, T0 + LEASE + TICK])
    def test_an_expired_lease_makes_no_orphans_and_claims_nothing(
        self, store: Store, moment: datetime
    ) -> None:
        register(store, WORKER, lease=LEASE)
        put(store, a_job(), a_job())
        claim_all(store, limit=1)
        lives = moment < T0 + LEASE
        assert store.orphans(10) == []
        assert len(claim_all(store, now=moment)) == lives
        assert store.beat([WORKER], lease=LEASE, now=moment).alive == {WORKER}
        assert len(claim_all(store, now=moment)) == (not lives)

    def test_a_retired_worker_is_gone_at_once(self, store: Store) -> None:
        register(store, WORKER, OTHER, lease=LEASE)
        claim = claim_one(store, put_one(store))
        store.retire([WORKER], now=at(1))
        assert store.beat([WORKER, OTHER], lease=LEASE, now=at(1)).alive == {OTHER}
        assert ids_of(store.orphans(10)) == [claim.id]
        mine = next(worker for worker in store.workers() if worker.id == WORKER)
        assert (mine.state, mine.expires_at) == (WorkerState.STOPPED, at(1))

    def test_a_worker_that_left_is_told_from_one_that_is_lost(self, store: Store) -> None:
        left, crashed, silent, late = (new_id() for _ in range(4))
        register(store, left, crashed, silent, late, lease=LEASE)
        store.retire([left], now=at(1))
        store.retire([crashed], crashed=True, now=at(1))
        store.retire([late], now=T0 + 2 * LEASE)
        assert store.declare_gone([(silent, 0)], now=T0 + 2 * LEASE) == {silent}
        found = {worker.id: worker for worker in store.workers()}
        assert {id for id in found if found[id].left} == {left, late}
        assert (found[left].beat_at, found[crashed].beat_at, found[silent].beat_at) == (at(1), T0, T0)

    def test_the_next_heartbeat_returns_a_drain_request(self, store: Store) -> None:
        register(store, WORKER, OTHER, lease=LEASE)
        assert store.drain([WORKER, new_id()]) == {WORKER}
        assert store.beat([WORKER, OTHER], lease=LEASE, now=at(1)) == Pulse(
            frozenset({WORKER, OTHER}), frozenset({WORKER}), []
        )
        assert store.beat([WORKER], lease=LEASE, now=at(2)).draining == {WORKER}
        states = {worker.id: worker.state for worker in store.workers()}
        assert states == {WORKER: WorkerState.DRAINING, OTHER: WorkerState.ACTIVE}

    def test_only_active_workers_can_be_drained(self, store: Store) -> None:
        register(store, WORKER, OTHER, lease=LEASE)
        store.retire([OTHER], now=at(1))
        assert store.drain([WORKER, OTHER]) == {WORKER}
        assert store.drain([WORKER]) == frozenset()
        states = {worker.id: worker.state for worker in store.workers()}
        assert states == {WORKER: WorkerState.DRAINING, OTHER: WorkerState.STOPPED}

    def test_sweep_deletes_old_stopped_workers_without_jobs(self, store: Store) -> None:
        """A worker whose lease expired long ago stays until it is declared gone: the clock may have been stepped."""
        idle, busy, fresh, alive, late = (new_id() for _ in range(5))
        register(store, idle, busy, late, lease=LEASE)
        register(store, fresh, lease=LEASE, now=at(3000))
        register(store, alive, lease=100 * HOUR)
        claim = claim_one(store, put_one(store), worker=busy)
        store.retire([idle, busy, fresh], now=at(3600))
        assert store.sweep(HOUR, now=at(3700)) == 1
        assert {worker.id for worker in store.workers()} == {busy, fresh, alive, late}
        finish_all(store, [claim], CRASHED)
        assert store.sweep(HOUR, now=at(3700)) == 1
        assert store.sweep(HOUR, now=at(3700)) == 0
        assert {worker.id for worker in store.workers()} == {fresh, alive, late}


class OrphanLaws:
    """Jobs of dead workers are found, and no others."""

    @pytest.mark.parametrize("state", sorted(HELD))
    def test_a_job_of_a_worker_declared_gone_is_an_orphan(self, store: Store, state: JobState) -> None:
        register(store, WORKER, lease=LEASE)
        job = bring(store, state, limits=("l",), args='{"a":1}')
        assert store.orphans(10) == []
        before = snapshot(store, job.id)
        assert store.declare_gone([(WORKER, 0)], now=at(31)) == {WORKER}
        (orphan,) = store.orphans(10)
        assert (orphan.id, orphan.token, orphan.attempt, orphan.crashes) == (job.id, 1, 1, 0)
        assert (orphan.worker, orphan.state, orphan.max_attempts) == (WORKER, state, 4)
        assert (orphan.args, orphan.limits, orphan.queue, orphan.tenant) == (
            '{"a":1}',
            ("l",),
            job.queue,
            "default",
        )
        assert snapshot(store, job.id) == before

    @pytest.mark.parametrize("state", UNHELD)
    def test_a_job_that_is_not_held_is_no_orphan(self, store: Store, state: JobState) -> None:
        bring(store, state)
        assert store.orphans(10) == store.overdue(10, now=at(10**6)) == []

    def test_orphans_come_in_claim_order_within_the_limit(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(3)])
        lane = Lane("default", "default", 0)
        for n in range(3):
            store.claim(asks(store, WORKER, [lane], 1), now=at(n))
        store.retire([WORKER], now=at(9))
        assert ids_of(store.orphans(10)) == ids
        assert ids_of(store.orphans(2)) == ids[:2]

    def test_an_orphan_is_finished_once_like_any_claim(self, store: Store) -> None:
        mine = claim_one(store, put_one(store))
        store.retire([WORKER], now=at(99))
        (orphan,) = store.orphans(10)
        assert store.finish([Finish(orphan, CRASHED)], now=at(99)) == frozenset()
        assert store.finish([Finish(orphan, CRASHED)], now=at(99)) == {mine.id}
        assert store.finish([Finish(mine, COMPLETED)], now=at(99)) == {mine.id}
        assert store.orphans(10) == []
        assert (get_one(store, mine.id).state, get_one(store, mine.id).crashes) == (S.PENDING, 1)

    def test_jobs_of_live_workers_are_no_orphans(self, store: Store) -> None:
        register(store, WORKER, lease=LEASE)
        register(store, OTHER, lease=HOUR)
        put(store, a_job(), a_job())
        dead, _ = claim_all(store, limit=1) + claim_all(store, worker=OTHER)
        store.declare_gone([(WORKER, 0)], now=at(31))
        assert ids_of(store.orphans(10)) == [dead.id]

    def test_overdue_jobs_are_past_their_timeout_oldest_first(self, store: Store) -> None:
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

    def test_the_timeout_counts_from_the_start(self, store: Store) -> None:
        claim = claim_one(store, put_one(store, timeout=10 * SECOND), start=False)
        store.start([claim], now=at(100))
        assert store.overdue(10, now=at(109)) == []
        assert ids_of(store.overdue(10, now=at(111))) == [claim.id]


class LeaseLaws:
    """A named lease has one holder, and its term distinguishes holders."""

    def test_a_free_lease_is_acquired_with_a_term(self, store: Store) -> None:
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

    def test_acquiring_a_lease_again_renews_it_and_keeps_the_term(self, store: Store) -> None:
        store.acquire("duty", WORKER, ttl=10 * SECOND, now=T0)
        again = store.acquire("duty", WORKER, ttl=10 * SECOND, now=at(5))
        assert again is not None
        assert (again.term, again.expires_at) == (1, at(15))
        assert store.acquire("duty", OTHER, ttl=10 * SECOND, now=at(12)) is None

    def test_an_expired_lease_is_acquired_with_the_next_term(self, store: Store) -> None:
        store.acquire("duty", WORKER, ttl=10 * SECOND, now=T0)
        lease = store.acquire("duty", OTHER, ttl=10 * SECOND, now=at(11))
        assert lease is not None
        assert (lease.holder, lease.term) == (OTHER, 2)
        assert not store.renew("duty", WORKER, 1, ttl=10 * SECOND, now=at(11))
        assert not store.release("duty", WORKER, 1)
        assert store.renew("duty", OTHER, 2, ttl=10 * SECOND, now=at(12))

    def test_renewing_extends_the_lease_and_stores_metadata(self, store: Store) -> None:
        store.acquire("duty", WORKER, ttl=10 * SECOND, now=T0)
        about = {"cursor": "a\\b “c” 🦊", "n": [1, None, 2.5]}
        assert store.renew("duty", WORKER, 1, ttl=10 * SECOND, metadata=about, now=at(9))
        (lease,) = store.leases()
        assert (lease.term, lease.expires_at, dict(lease.metadata)) == (1, at(19), about)
        assert store.acquire("duty", OTHER, ttl=10 * SECOND, now=at(15)) is None

    def test_renewing_fails_for_a_former_holder(self, store: Store) -> None:
        store.acquire("duty", WORKER, ttl=10 * SECOND, now=T0)
        before = store.leases()
        assert not store.renew("duty", OTHER, 1, ttl=HOUR, now=at(1))
        assert not store.renew("duty", WORKER, 2, ttl=HOUR, now=at(1))
        assert not store.renew("other", WORKER, 1, ttl=HOUR, now=at(1))
        assert not store.renew("duty", WORKER, 1, ttl=HOUR, now=at(11))
        assert store.leases() == before

    def test_a_released_lease_is_free_at_once_with_the_next_term(self, store: Store) -> None:
        store.acquire("duty", WORKER, ttl=HOUR, now=T0)
        assert not store.release("duty", OTHER, 1)
        assert not store.release("duty", WORKER, 2)
        assert store.release("duty", WORKER, 1)
        assert not store.release("duty", WORKER, 1)
        assert not store.renew("duty", WORKER, 1, ttl=HOUR, now=at(1))
        lease = store.acquire("duty", OTHER, ttl=HOUR, now=at(1))
        assert lease is not None
        assert (lease.holder, lease.term) == (OTHER, 2)

    def test_leases_are_independent_and_listed_by_name(self, store: Store) -> None:
        for name in ("c", "a", "b"):
            assert store.acquire(name, WORKER, ttl=HOUR, now=T0) is not None
        assert [lease.name for lease in store.leases()] == ["a", "b", "c"]

    def test_a_lease_for_each_duty_changes_hands_apart_from_the_others(self, store: Store) -> None:
        names = [duty_lease_name(duty) for duty in ("fire", "promote", "sweep")]
        for name in names:
            assert store.acquire(name, WORKER, ttl=HOUR, now=T0) is not None
            assert store.renew(name, WORKER, 1, ttl=HOUR, metadata={"duties": {name: {}}}, now=at(1))
        assert store.release(names[1], WORKER, 1)
        passed_on = store.acquire(names[1], OTHER, ttl=HOUR, now=at(2))
        assert passed_on is not None
        leases = store.leases()
        assert [lease.name for lease in leases] == names
        assert [(lease.holder, lease.term) for lease in leases] == [(WORKER, 1), (OTHER, 2), (WORKER, 1)]
        assert [list(lease.metadata) for lease in leases] == [["duties"], [], ["duties"]]
        assert not store.renew(names[1], WORKER, 1, ttl=HOUR, now=at(3))
        assert store.renew(names[0], WORKER, 1, ttl=HOUR, now=at(3))
        assert not store.release(names[2], OTHER, 2)

    def test_many_leases_taken_at_once_get_one_holder_each(self, store: Store) -> None:
        names = [duty_lease_name(f"duty-{number}") for number in range(6)]
        wanted = [(name, new_id()) for name in names for _ in range(3)]
        reach = [
            partial(patiently, store.acquire, name, holder, ttl=SECOND, now=T0) for name, holder in wanted
        ]
        taken = [lease for lease in together(reach) if lease is not None]
        assert sorted(lease.name for lease in taken) == names
        assert [(lease.name, lease.holder) for lease in store.leases()] == sorted(
            (lease.name, lease.holder) for lease in taken
        )

    def test_one_of_many_concurrent_acquires_gets_the_lease(self, store: Store) -> None:
        holders = [new_id() for _ in range(6)]
        for term in range(1, 6):
            now = T0 + term * timedelta(minutes=1)
            reach = [
                partial(patiently, store.acquire, "duty", holder, ttl=SECOND, now=now) for holder in holders
            ]
            (lease,) = [lease for lease in together(reach) if lease is not None]
            assert lease.term <= term
            assert [row.holder for row in store.leases()] == [lease.holder]
