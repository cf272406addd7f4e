"""Laws of holding: what a worker holds, and locks that live with their holder."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.states import HELD, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Hold, Store
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


def take(store: Store, name: str = "duties") -> Hold:
    """A hold that must be free."""
    hold = patiently(store.hold, name)
    assert hold is not None
    assert hold.held()
    return hold


class HeldLaws:
    """A worker can ask what it holds, when an answer was lost."""

    @pytest.mark.parametrize("state", sorted(HELD))
    def test_what_a_worker_holds_is_told_as_the_claim_it_is(self, store: Store, state: JobState) -> None:
        job = bring(store, state, limits=("l",), args='{"a":1}', timeout=SECOND, priority=7)
        before = snapshot(store, job.id)
        assert store.held(WORKER) == [held(job)]
        assert snapshot(store, job.id) == before

    @pytest.mark.parametrize("start", [True, False])
    def test_what_a_claim_answered_is_what_is_held(self, store: Store, start: bool) -> None:
        put(store, a_job(limits=("l",)), a_job(tenant="t"))
        claims = claim_all(store, start=start)
        assert sorted(store.held(WORKER)) == sorted(claim._replace(seq=None) for claim in claims)

    @pytest.mark.parametrize("state", UNHELD)
    def test_a_job_nobody_holds_is_not_told(self, store: Store, state: JobState) -> None:
        bring(store, state)
        assert store.held(WORKER) == []

    def test_every_worker_is_told_its_own_jobs_only(self, store: Store) -> None:
        put(store, a_job(), a_job(tenant="a"), a_job(queue="b"))
        mine = claim_all(store, limit=1, start=False)
        others = claim_all(store, worker=OTHER)
        assert len(others) == 2
        assert ids_of(store.held(WORKER)) == ids_of(mine)
        assert sorted(ids_of(store.held(OTHER))) == sorted(ids_of(others))
        assert store.held(new_id()) == []

    def test_what_is_held_comes_by_its_claim(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(5)])
        lane = Lane("default", "default", 0)
        taken = [store.claim(ClaimRequest(WORKER, [lane], 1), now=at(n))[0].id for n in (4, 3, 0, 2, 1)]
        assert taken == ids
        assert ids_of(store.held(WORKER)) == [ids[2], ids[4], ids[3], ids[1], ids[0]]

    def test_what_was_claimed_together_comes_by_id(self, store: Store) -> None:
        put(store, *[a_job(priority=n % 3) for n in range(9)])
        claims = claim_all(store)
        assert ids_of(store.held(WORKER)) == sorted(ids_of(claims))

    def test_a_held_job_that_starts_or_is_to_stop_is_told_so(self, store: Store) -> None:
        claim = claim_one(store, put_one(store), start=False)
        store.start([claim], now=at(1))
        store.request_cancel([claim.id], tenant=ALL_TENANTS, reason="no longer wanted")
        (told,) = store.held(WORKER)
        assert (told.state, told.cancel_reason) == (S.RUNNING, "no longer wanted")

    @pytest.mark.parametrize("state", sorted(ENDS | BACKS))
    def test_after_finish_nothing_is_held(self, store: Store, state: JobState) -> None:
        put(store, a_job(), a_job())
        first, second = claim_all(store)
        finish_all(store, [first], (ENDS | BACKS)[state])
        assert ids_of(store.held(WORKER)) == [second.id]
        finish_all(store, [second], COMPLETED)
        assert store.held(WORKER) == []

    def test_a_job_that_went_to_another_is_the_others(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], CRASHED)
        again = claim_one(store, claim.id, worker=OTHER)
        assert store.held(WORKER) == []
        (told,) = store.held(OTHER)
        assert (told.token, told.attempt, told.crashes) == (again.token, again.attempt, again.crashes)

    def test_an_expired_or_unknown_worker_is_told_all_the_same(self, store: Store) -> None:
        register(store, WORKER, lease=SECOND)
        put(store, a_job(), a_job())
        claim_all(store, limit=1)
        claim_all(store, limit=1, worker=OTHER)
        store.retire([WORKER], now=at(1))
        assert len(store.held(WORKER)) == len(store.held(OTHER)) == 1
        assert len(store.orphans(10, now=at(2))) == 2

    def test_what_a_worker_holds_can_be_finished_from_what_is_told(self, store: Store) -> None:
        id = put_one(store)
        claim_one(store, id, start=False)
        finish_all(store, store.held(WORKER), AGAIN, now=at(1))
        assert get_one(store, id).state is S.PENDING

    def test_within_a_transaction_what_was_claimed_there_is_told(self, store: Store) -> None:
        put_one(store)
        with suppress(_Stop), store.transaction():
            claim = claim_one(store)
            assert ids_of(store.held(WORKER)) == [claim.id]
            raise _Stop
        assert store.held(WORKER) == []


class _Stop(Exception):
    """Ends a transaction without keeping it."""


class HoldLaws:
    """A hold has one holder, for as long as the holder keeps it.

    Where several store objects can share a database, override the fixture ``neighbour`` with a second one.
    """

    @pytest.fixture
    def neighbour(self, store: Store) -> Store:
        """Another store object on the same database; the store itself where there can be no other."""
        return store

    def test_a_hold_excludes_everybody_else(self, store: Store, neighbour: Store) -> None:
        hold = take(store)
        assert store.hold("duties") is None
        assert neighbour.hold("duties") is None
        assert hold.held()
        hold.release()

    def test_a_released_hold_is_free_at_once(self, store: Store, neighbour: Store) -> None:
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

    def test_releasing_twice_takes_nothing_from_the_next_holder(self, store: Store, neighbour: Store) -> None:
        hold = take(store)
        hold.release()
        other = take(neighbour)
        hold.release()
        assert other.held()
        assert store.hold("duties") is None
        other.release()

    def test_closing_the_store_lets_go_of_its_holds(self, store: Store, neighbour: Store) -> None:
        holds = [take(store), take(store, "reports")]
        store.close()
        assert [hold.held() for hold in holds] == [False, False]
        for hold in holds:
            hold.release()
        if neighbour is not store:
            take(neighbour).release()
            take(neighbour, "reports").release()

    def test_holds_are_told_apart_by_their_names(self, store: Store) -> None:
        holds = [take(store, name) for name in NAMES]
        assert [store.hold(name) for name in NAMES] == [None] * len(NAMES)
        holds.pop().release()
        assert all(hold.held() for hold in holds)
        for hold in holds:
            hold.release()

    def test_a_hold_is_no_lease(self, store: Store) -> None:
        lease = store.acquire("duties", WORKER, ttl=SECOND, now=T0)
        hold = take(store)
        assert lease is not None
        assert store.leases() == [lease]
        hold.release()
        assert store.leases() == [lease]

    def test_a_hold_is_no_part_of_a_transaction(self, store: Store, neighbour: Store) -> None:
        taken: list[Hold] = []
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

    def test_of_many_who_reach_for_a_hold_exactly_one_gets_it(self, store: Store, neighbour: Store) -> None:
        for _ in range(5):
            reach = [partial(patiently, each.hold, "duties") for each in (store, neighbour) * 3]
            (hold,) = [each for each in together(reach) if each is not None]
            assert hold.held()
            hold.release()
