"""Laws of released limit slots: every exit of a held job releases its slots once."""

from __future__ import annotations

from contextlib import suppress

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Finish, Move, Transition
from tidemill.domain.states import JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    ASLEEP,
    BACKS,
    CRASHED,
    ENDS,
    FAILED,
    OTHER,
    RELEASED,
    T0,
    WORKER,
    a_job,
    at,
    claim_all,
    claim_one,
    finish_all,
    get_one,
    ids_of,
    put,
    put_one,
    register,
    retry,
    wants,
)
from tidemill.testing.conformance.limited_claims import Undo, at_once, by_name, claim_within, used

S = JobState
ONE, TWO = at_once("one", 1), at_once("two", 2)
EXITS = [*ENDS.values(), *BACKS.values(), RELEASED, CRASHED, ASLEEP]
every_exit = pytest.mark.parametrize(
    "way", EXITS, ids=[f"{way.state}-{way.execution}-{way.delay.seconds}" for way in EXITS]
)


class GiveBackLaws:
    """Law 18: a finish releases what its claim counted."""

    @every_exit
    @pytest.mark.parametrize("start", [True, False])
    def test_every_exit_releases_its_limits(self, store: Store, way: Transition, start: bool) -> None:
        put(store, a_job(limits=("one", "x")), a_job(limits=("one",), priority=-1))
        (claim,) = claim_within(store, ONE, start=start)
        assert used(store, "one", "x") == [1, 1]
        finish_all(store, [claim], way)
        assert used(store, "one", "x") == [0, 0]
        assert len(claim_within(store, ONE)) == 1

    @every_exit
    def test_a_step_releases_before_it_claims(self, store: Store, way: Transition) -> None:
        first = put_one(store, limits=("one",), priority=-1)
        (claim,) = claim_within(store, ONE)
        second = put_one(store, limits=("one",))
        request = wants(store)._replace(rules=by_name(ONE))
        step = store.step([Finish(claim, way)], request, now=T0)
        assert (claim.id, step.lost, ids_of(step.claims)) == (first, frozenset(), [second])
        assert used(store, "one") == [1]

    def test_a_step_that_only_finishes_releases_its_limits(self, store: Store) -> None:
        claim = claim_one(store, put_one(store, limits=("one",)))
        store.step([Finish(claim, COMPLETED)], wants(store), now=T0)
        assert used(store, "one") == [0]

    def test_a_step_counts_limited_jobs_among_unlimited_ones(self, store: Store) -> None:
        plain = claim_one(store, put_one(store))
        ids = put(store, a_job(), a_job(limits=("one",)), a_job(limits=("one",)))
        request = wants(store)._replace(rules=by_name(ONE))
        step = store.step([Finish(plain, COMPLETED)], request, now=T0)
        assert ids_of(step.claims) == ids[:2]
        assert used(store, "one") == [1]

    def test_a_batch_releases_once_per_finish(self, store: Store) -> None:
        put(store, *[a_job(limits=("x", f"y/{n % 2}")) for n in range(5)], a_job())
        claims = claim_all(store)
        finish_all(store, [claim for claim in claims if claim.limits != ("x", "y/0")])
        assert used(store, "x", "y/0", "y/1") == [3, 3, 0]

    def test_orphans_release_their_limits_when_reclaimed(self, store: Store) -> None:
        register(store, WORKER)
        put(store, *[a_job(limits=("two",)) for _ in range(3)])
        claim_within(store, TWO)
        store.retire([WORKER], now=at(1))
        assert claim_within(store, TWO, worker=OTHER, now=at(1)) == []
        orphans = store.orphans(10)
        assert [orphan.limits for orphan in orphans] == [("two",)] * 2
        finish_all(store, orphans, CRASHED, now=at(1))
        assert used(store, "two") == [0]
        assert len(claim_within(store, TWO, worker=OTHER, now=at(1))) == 2

    def test_orphans_release_added_limits(self, store: Store) -> None:
        put_one(store, limits=("x",))
        lanes = [lane._replace(limits=("x", "more")) for lane in store.gates()]
        store.claim(wants(store)._replace(lanes=lanes), now=T0)
        store.retire([WORKER], now=at(1))
        finish_all(store, store.orphans(10), CRASHED, now=at(1))
        assert used(store, "x", "more") == [0, 0]

    def test_timed_out_jobs_release_their_limits(self, store: Store) -> None:
        claim_one(store, put_one(store, limits=("one",), timeout=at(1) - T0))
        finish_all(store, store.overdue(10, now=at(5)), ENDS[S.TIMED_OUT], now=at(5))
        assert used(store, "one") == [0]

    def test_a_lost_finish_releases_nothing(self, store: Store) -> None:
        id = put_one(store, limits=("one",))
        (first,) = claim_within(store, ONE)
        finish_all(store, [first], AGAIN)
        (second,) = claim_within(store, ONE)
        for way in (COMPLETED, FAILED, AGAIN):
            assert store.finish([Finish(first, way)], now=T0) == {id}
            assert store.step([Finish(first, way)], wants(store), now=T0).lost == {id}
        assert used(store, "one") == [1]
        finish_all(store, [second])
        assert store.finish([Finish(second, COMPLETED)], now=T0) == {id}
        assert used(store, "one") == [0]

    def test_a_batch_releases_only_what_it_finished(self, store: Store) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(3)])
        claims = claim_all(store)
        finish_all(store, claims[:1])
        assert store.finish([Finish(claim, COMPLETED) for claim in claims[:2]], now=T0) == {claims[0].id}
        assert used(store, "x") == [1]

    def test_a_retried_job_returns_to_its_limited_lane(self, store: Store) -> None:
        ids = put(store, *[a_job(limits=("one",)) for _ in range(2)])
        finish_all(store, claim_within(store, ONE), AGAIN)
        assert store.lanes() == []
        assert ids_of(claim_within(store, ONE)) == ids[1:]
        assert claim_within(store, ONE) == []

    def test_a_scheduled_limited_job_enters_its_lane_when_due(self, store: Store) -> None:
        put_one(store, limits=("one",), delay=at(1) - T0)
        assert store.gates() == []
        store.promote(10, now=at(1))
        assert [lane.limits for lane in store.gates()] == [("one",)]
        assert store.lanes() == []

    def test_an_ended_job_that_is_retried_counts_again(self, store: Store) -> None:
        id = put_one(store, limits=("one",))
        finish_all(store, claim_within(store, ONE), FAILED)
        store.move([retry(get_one(store, id))], now=T0)
        assert ids_of(claim_within(store, ONE)) == [id]
        assert used(store, "one") == [1]

    def test_moving_unheld_jobs_counts_nothing(self, store: Store) -> None:
        a, b, c = put(store, *[a_job(limits=("two",)) for _ in range(3)])
        assert ids_of(claim_within(store, TWO)) == [a, b]
        store.move([Move(c, "default", frozenset({S.PENDING}), S.CANCELLED)], now=T0)
        store.delete([c], tenant="default")
        assert used(store, "two") == [2]


class UndoneLimitLaws:
    """Law 12: a transaction that does not commit counts nothing."""

    def test_a_rolled_back_claim_counts_nothing(self, store: Store) -> None:
        ids = put(store, *[a_job(limits=("one",)) for _ in range(2)])
        with suppress(Undo), store.transaction():
            assert len(claim_within(store, ONE)) == 1
            assert used(store, "one") == [1]
            raise Undo
        assert used(store, "one") == [0]
        assert ids_of(claim_within(store, ONE)) == ids[:1]

    def test_a_rolled_back_finish_releases_nothing(self, store: Store) -> None:
        put(store, *[a_job(limits=("one",)) for _ in range(2)])
        claims = claim_within(store, ONE)
        with suppress(Undo), store.transaction():
            finish_all(store, claims)
            assert len(claim_within(store, ONE)) == 1
            raise Undo
        assert used(store, "one") == [1]
        assert claim_within(store, ONE) == []

    def test_verbs_of_one_transaction_count_together(self, store: Store) -> None:
        put(store, *[a_job(limits=("two",)) for _ in range(4)])
        with store.transaction():
            first = claim_within(store, TWO, limit=1)
            assert len(claim_within(store, TWO)) == 1
            assert claim_within(store, TWO) == []
            finish_all(store, first)
            assert len(claim_within(store, TWO)) == 1
        assert used(store, "two") == [2]

    def test_rules_are_rolled_back_with_their_transaction(self, store: Store) -> None:
        store.put_rules([ONE], now=T0)
        with suppress(Undo), store.transaction():
            store.put_rules([TWO], now=T0)
            store.drop_rules(["one"])
            raise Undo
        assert [rule.name for rule in store.rules()] == ["one"]
