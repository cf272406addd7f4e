"""Laws of held jobs, and of locks that live as long as their holder."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.lanes import Lane
from tidemill.domain.states import HELD, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Lock, Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    BACKS,
    CRASHED,
    ENDS,
    OTHER,
    SECOND,
    T0,
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
    held,
    ids_of,
    patiently,
    put,
    put_one,
    register,
    snapshot,
    together,
)

S = JobState
NAMES = ["duties", "", "Duties", "a/b", "../up", "with space", "ünï “c” 🦊", "%2F", "a%b", "a.b:c", "x" * 400]


def take(store: Store, name: str = "duties") -> Lock:
    """Take a lock that must be free."""
    hold = patiently(store.hold, name)
    assert hold is not None
    assert hold.held()
    return hold


class HeldLaws:
    """A worker can query what it holds, after a lost response."""

    @pytest.mark.parametrize("state", sorted(HELD))
    def test_held_returns_claims_of_held_jobs(self, store: Store, state: JobState) -> None:
        job = bring(store, state, limits=("l",), args='{"a":1}', timeout=SECOND, priority=7)
        before = snapshot(store, job.id)
        assert store.held(WORKER) == [held(job)]
        assert snapshot(store, job.id) == before

    @pytest.mark.parametrize("start", [True, False])
    def test_held_returns_what_claim_returned(self, store: Store, start: bool) -> None:
        put(store, a_job(limits=("l",)), a_job(tenant="t"))
        claims = claim_all(store, start=start)
        assert sorted(store.held(WORKER)) == sorted(claim._replace(seq=None) for claim in claims)

    @pytest.mark.parametrize("state", UNHELD)
    def test_held_omits_jobs_that_are_not_held(self, store: Store, state: JobState) -> None:
        bring(store, state)
        assert store.held(WORKER) == []

    def test_held_returns_only_jobs_of_the_worker(self, store: Store) -> None:
        put(store, a_job(), a_job(tenant="a"), a_job(queue="b"))
        mine = claim_all(store, limit=1, start=False)
        others = claim_all(store, worker=OTHER)
        assert len(others) == 2
        assert ids_of(store.held(WORKER)) == ids_of(mine)
        assert sorted(ids_of(store.held(OTHER))) == sorted(ids_of(others))
        assert store.held(new_id()) == []

    def test_held_jobs_are_ordered_by_claim(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(5)])
        lane = Lane("default", "default", 0)
        taken = [store.claim(asks(store, WORKER, [lane], 1), now=at(n))[0].id for n in (4, 3, 0, 2, 1)]
        assert taken == ids
        assert ids_of(store.held(WORKER)) == [ids[2], ids[4], ids[3], ids[1], ids[0]]

    def test_jobs_claimed_together_are_ordered_by_id(self, store: Store) -> None:
        put(store, *[a_job(priority=n % 3) for n in range(9)])
        claims = claim_all(store)
        assert ids_of(store.held(WORKER)) == sorted(ids_of(claims))

    def test_held_shows_starts_and_cancel_requests(self, store: Store) -> None:
        claim = claim_one(store, put_one(store), start=False)
        store.start([claim], now=at(1))
        store.request_cancel([claim.id], tenant=ALL_TENANTS, reason="no longer wanted")
        (claim_held,) = store.held(WORKER)
        assert (claim_held.state, claim_held.cancel_reason) == (S.RUNNING, "no longer wanted")

    @pytest.mark.parametrize("state", sorted(ENDS | BACKS))
    def test_after_finish_nothing_is_held(self, store: Store, state: JobState) -> None:
        put(store, a_job(), a_job())
        first, second = claim_all(store)
        finish_all(store, [first], (ENDS | BACKS)[state])
        assert ids_of(store.held(WORKER)) == [second.id]
        finish_all(store, [second], COMPLETED)
        assert store.held(WORKER) == []

    def test_a_reclaimed_job_is_held_by_its_new_worker(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], CRASHED)
        again = claim_one(store, claim.id, worker=OTHER)
        assert store.held(WORKER) == []
        (claim_held,) = store.held(OTHER)
        assert (claim_held.token, claim_held.attempt, claim_held.crashes) == (
            again.token,
            again.attempt,
            again.crashes,
        )

    def test_held_works_without_a_valid_lease(self, store: Store) -> None:
        register(store, WORKER, OTHER, lease=SECOND)
        put(store, a_job(), a_job())
        claim_all(store, limit=1)
        claim_all(store, limit=1, worker=OTHER)
        store.retire([WORKER], now=at(1))
        assert len(store.held(WORKER)) == len(store.held(OTHER)) == 1
        assert ids_of(store.orphans(10)) == ids_of(store.held(WORKER))

    def test_claims_returned_by_held_can_be_finished(self, store: Store) -> None:
        id = put_one(store)
        claim_one(store, id, start=False)
        finish_all(store, store.held(WORKER), AGAIN, now=at(1))
        assert get_one(store, id).state is S.PENDING

    def test_held_sees_claims_of_its_own_transaction(self, store: Store) -> None:
        put_one(store)
        with suppress(_Stop), store.transaction():
            claim = claim_one(store)
            assert ids_of(store.held(WORKER)) == [claim.id]
            raise _Stop
        assert store.held(WORKER) == []


class _Stop(Exception):
    """Leaves a transaction without committing it."""


class HoldLaws:
    """A lock has one holder, for as long as the holder keeps it.

    Where several store objects can share a database, override the fixture ``neighbour`` with a second one.
    """

    @pytest.fixture
    def neighbour(self, store: Store) -> Store:
        """Return another store object on the same database, or the store itself if there can be no other."""
        return store

    def test_a_lock_is_exclusive(self, store: Store, neighbour: Store) -> None:
        hold = take(store)
        assert store.hold("duties") is None
        assert neighbour.hold("duties") is None
        assert hold.held()
        hold.release()

    def test_a_released_lock_is_free_at_once(self, store: Store, neighbour: Store) -> None:
        hold = take(store)
        hold.release()
        assert not hold.held()
        other = neighbour.hold("duties")
        assert other is not None
        assert other.held()
        assert not hold.held()
        assert store.hold("duties") is None
        other.release()
        again = store.hold("duties")
        assert again is not None
        again.release()

    def test_releasing_twice_does_not_affect_the_next_holder(self, store: Store, neighbour: Store) -> None:
        hold = take(store)
        hold.release()
        other = take(neighbour)
        hold.release()
        assert other.held()
        assert store.hold("duties") is None
        other.release()

    def test_closing_the_store_releases_its_locks(self, store: Store, neighbour: Store) -> None:
        holds = [take(store), take(store, "reports")]
        store.close()
        assert [hold.held() for hold in holds] == [False, False]
        for hold in holds:
            hold.release()
        if neighbour is not store:
            take(neighbour).release()
            take(neighbour, "reports").release()

    def test_locks_with_different_names_are_independent(self, store: Store) -> None:
        holds = [take(store, name) for name in NAMES]
        assert [store.hold(name) for name in NAMES] == [None] * len(NAMES)
        holds.pop().release()
        assert all(hold.held() for hold in holds)
        for hold in holds:
            hold.release()

    def test_a_lock_is_not_a_lease(self, store: Store) -> None:
        lease = store.acquire("duties", WORKER, ttl=SECOND, now=T0)
        hold = take(store)
        assert lease is not None
        assert store.leases() == [lease]
        hold.release()
        assert store.leases() == [lease]

    def test_a_lock_is_not_part_of_a_transaction(self, store: Store, neighbour: Store) -> None:
        taken: list[Lock] = []
        with suppress(_Stop), store.transaction():
            put_one(store)
            taken.append(take(store))
            raise _Stop
        assert taken[0].held()
        assert neighbour.hold("duties") is None
        with suppress(_Stop), store.transaction():
            put_one(store)
            taken[0].release()
            raise _Stop
        assert not taken[0].held()
        take(neighbour).release()

    def test_one_of_many_concurrent_calls_gets_the_lock(self, store: Store, neighbour: Store) -> None:
        for _ in range(5):
            reach = [partial(patiently, each_store.hold, "duties") for each_store in (store, neighbour) * 3]
            (hold,) = [lock for lock in together(reach) if lock is not None]
            assert hold.held()
            hold.release()
