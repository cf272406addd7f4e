"""Laws of jobs that are enqueued as waiting, and of jobs that expire unclaimed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Details, Enqueued, Move, UniqueHold
from tidemill.domain.states import ENDED, HELD, JobState
from tidemill.errors import JobExists
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    HOUR,
    T0,
    TICK,
    a_job,
    at,
    bring,
    claim_all,
    claim_one,
    get_one,
    ids_of,
    put,
    put_one,
)

S = JobState
WHY = "overlap: waits for the previous job"
EXPIRING = [S.PENDING, S.SCHEDULED, S.WAITING]


def wake(id: UUID) -> Move:
    """Return the move that makes a waiting job pending."""
    return Move(id, "default", frozenset({S.WAITING}), S.PENDING, "its turn")


class WaitingLaws:
    """``NewJob.waiting``."""

    def test_a_waiting_job_is_stored_with_its_reason(self, store: Store) -> None:
        details = Details(correlation_id="c", schedule_id=new_id(), fire_at=T0, tags=("a",))
        new = a_job(waiting=WHY, priority=3, limits=("l",), details=details, expires_at=at(9), args='{"n":1}')
        assert store.enqueue([new], now=T0) == [Enqueued(new.id, True)]
        job = get_one(store, new.id)
        assert (job.state, job.reason, job.run_at, job.created_at) == (S.WAITING, WHY, T0, T0)
        assert (job.attempt, job.token, job.result, job.worker) == (0, 0, None, None)
        assert (job.priority, job.limits, job.details, job.expires_at) == (3, ("l",), details, at(9))
        assert (job.args, job.timeout, job.max_attempts) == ('{"n":1}', new.timeout, new.max_attempts)

    @pytest.mark.parametrize("when", [{}, {"delay": HOUR}, {"run_at": at(60)}, {"run_at": at(-60)}])
    def test_a_job_enqueued_as_waiting_is_never_promoted(self, store: Store, when: dict[str, Any]) -> None:
        id = put_one(store, waiting=WHY, **when)
        assert get_one(store, id).run_at == T0
        promoted = store.promote(100, now=at(10**6))
        assert (promoted.moved, promoted.next_run_at) == (0, None)
        assert store.lanes() == []
        assert claim_all(store, now=at(10**6)) == []

    def test_a_move_makes_a_waiting_job_pending(self, store: Store) -> None:
        id = put_one(store, waiting=WHY)
        assert store.move([wake(id)], now=at(5)) == {id}
        job = get_one(store, id)
        assert (job.state, job.reason, job.run_at) == (S.PENDING, "its turn", at(5))
        claim = claim_one(store, id, now=at(5))
        assert (claim.attempt, claim.token) == (1, 1)

    def test_a_waiting_job_can_be_cancelled(self, store: Store) -> None:
        id = put_one(store, waiting=WHY)
        assert store.move([Move(id, "default", frozenset({S.WAITING}), S.CANCELLED, "no")], now=at(1)) == {id}
        assert get_one(store, id).state is S.CANCELLED

    def test_a_batch_may_contain_every_initial_state(self, store: Store) -> None:
        jobs = [a_job(), a_job(waiting=WHY), a_job(delay=HOUR), a_job(waiting=""), a_job()]
        put(store, *jobs)
        states = [get_one(store, job.id).state for job in jobs]
        assert states == [S.PENDING, S.WAITING, S.SCHEDULED, S.WAITING, S.PENDING]
        assert get_one(store, jobs[3].id).reason == ""
        assert ids_of(claim_all(store)) == [jobs[0].id, jobs[4].id]

    def test_a_waiting_job_holds_its_unique_key(self, store: Store) -> None:
        key = UniqueHold("key")
        first = put_one(store, waiting=WHY, unique=key)
        second, third = a_job(unique=key), a_job(waiting=WHY, unique=key)
        answers = store.enqueue([second, third], now=T0)
        assert answers == [Enqueued(first, False), Enqueued(first, False)]
        store.move([wake(first)], now=T0)
        assert store.enqueue([second], now=T0) == [Enqueued(first, False)]
        store.move([Move(first, "default", frozenset({S.PENDING}), S.CANCELLED)], now=T0)
        assert store.enqueue([third, second], now=T0) == [Enqueued(third.id, True), Enqueued(third.id, False)]
        assert get_one(store, third.id).state is S.WAITING

    def test_a_batch_with_a_stored_id_inserts_no_waiting_job(self, store: Store) -> None:
        stored = put_one(store, waiting=WHY)
        with pytest.raises(JobExists):
            store.enqueue([a_job(waiting=WHY), a_job(id=stored)], now=T0)
        with pytest.raises(JobExists):
            store.enqueue([a_job(waiting=WHY), a_job(waiting=WHY, id=stored)], now=T0)
        assert store.count(JobFilter(ALL_TENANTS)) == {S.WAITING: 1}


class ExpiredLaws:
    """Jobs whose time to start has passed."""

    @pytest.mark.parametrize("state", EXPIRING)
    def test_an_unclaimed_job_expires(self, store: Store, state: JobState) -> None:
        job = bring(store, state, expires_at=at(10), tenant="ann", details=Details(tags=("a",)))
        assert store.expired(10, now=at(10) - TICK) == []
        assert store.expired(10, now=at(10)) == [job]
        assert get_one(store, job.id) == job

    @pytest.mark.parametrize("state", sorted({*HELD, *ENDED, S.REVIEW_NEEDED}))
    def test_held_ended_and_reviewed_jobs_do_not_expire(self, store: Store, state: JobState) -> None:
        bring(store, state, expires_at=at(10))
        assert store.expired(10, now=at(99)) == []

    def test_a_job_without_an_expiry_never_expires(self, store: Store) -> None:
        put(store, a_job(), a_job(delay=HOUR), a_job(waiting=WHY))
        assert store.expired(10, now=at(10**8)) == []

    def test_expired_jobs_come_oldest_first(self, store: Store) -> None:
        ways: list[dict[str, Any]] = [{}, {"delay": HOUR}, {"waiting": WHY}] * 2
        jobs = [a_job(expires_at=at(10 - n), **way) for n, way in enumerate(ways)]
        put(store, *jobs, a_job(expires_at=at(50)))
        latest = [job.id for job in reversed(jobs)]
        assert ids_of(store.expired(100, now=at(20))) == latest
        assert ids_of(store.expired(4, now=at(20))) == latest[:4]
        assert store.expired(0, now=at(20)) == []

    def test_jobs_that_expired_together_are_ordered_by_id(self, store: Store) -> None:
        ways: list[dict[str, Any]] = [{}, {"delay": HOUR}, {"waiting": WHY}] * 2
        ids = put(store, *[a_job(expires_at=at(1), **way) for way in ways])
        assert ids_of(store.expired(5, now=at(1))) == sorted(ids)[:5]

    def test_a_reopened_job_can_expire(self, store: Store) -> None:
        job = bring(store, S.FAILED, expires_at=at(10))
        store.move([Move(job.id, "default", frozenset({S.FAILED}), S.PENDING, restart=True)], now=at(20))
        assert ids_of(store.expired(10, now=at(20))) == [job.id]
        store.move([Move(job.id, "default", frozenset({S.PENDING}), S.CANCELLED)], now=at(20))
        assert store.expired(10, now=at(20)) == []
