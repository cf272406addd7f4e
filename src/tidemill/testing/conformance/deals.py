"""Laws of deals, which claim for several workers at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import pytest

from tidemill.domain.cluster import Worker
from tidemill.domain.deals import Ask, DealRequest
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Finish, UniqueHold
from tidemill.domain.lanes import Lane
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    CRASHED,
    FAILED,
    OTHER,
    T0,
    WORKER,
    a_job,
    asks,
    at,
    claim_one,
    finish_all,
    get_one,
    hire,
    ids_of,
    ordered_lanes,
    put,
    put_one,
)
from tidemill.testing.conformance.limited_claims import at_once, used

S = JobState


def deal(
    store: Store,
    *wanted: Ask,
    finishes: Sequence[Finish] = (),
    tasks: Sequence[str] | None = None,
    start: bool = True,
) -> list[Claim]:
    """Deal from all lanes to registered workers; no finish is lost."""
    hire(store, *(ask.worker for ask in wanted))
    step = store.deal(finishes, DealRequest(wanted, ordered_lanes(store), tasks, start), now=at(1))
    assert step.lost == frozenset()
    return step.claims


class DealLaws:
    """Law 39: jobs go to workers that asked, in turn."""

    def test_a_deal_gives_each_worker_at_most_its_limit(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(9)])
        claims = deal(store, Ask(WORKER, 2), Ask(OTHER, 3))
        assert ids_of(claims) == ids[:5]
        assert Counter(claim.worker for claim in claims) == {WORKER: 2, OTHER: 3}

    def test_jobs_are_dealt_in_turn(self, store: Store) -> None:
        put(store, *[a_job() for _ in range(4)])
        third = new_id()
        claims = deal(store, Ask(OTHER, 3), Ask(WORKER, 1), Ask(third, 2))
        assert [claim.worker for claim in claims] == [OTHER, WORKER, third, OTHER]

    def test_the_rows_name_the_workers_of_the_claims(self, store: Store) -> None:
        put(store, *[a_job() for _ in range(4)])
        for claim in deal(store, Ask(WORKER, 2), Ask(OTHER, 2)):
            job = get_one(store, claim.id)
            assert (job.worker, job.token, job.attempt, job.state) == (
                claim.worker,
                claim.token,
                1,
                S.RUNNING,
            )
            assert (job.claimed_at, job.started_at) == (at(1), at(1))
        assert len(store.held(WORKER)) == len(store.held(OTHER)) == 2

    def test_a_deal_equals_a_claim_in_everything_but_the_worker(self, store: Store) -> None:
        put_one(store, priority=3, queue="q", tenant="t", args='{"a":1}', timeout=None)
        (dealt,) = deal(store, Ask(WORKER, 1), Ask(OTHER, 1), start=False)
        finish_all(store, [dealt], AGAIN, now=at(1))
        claimed = claim_one(store, dealt.id, start=False, now=at(1))
        assert claimed._replace(token=1, attempt=1, seq=None, run_at=T0) == dealt._replace(seq=None)

    def test_a_worker_without_a_lease_gets_nothing_and_takes_no_turn(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(3)])
        dead, gone = new_id(), new_id()
        store.register(Worker(dead, "dead"), lease=timedelta(seconds=1), now=T0 - timedelta(seconds=9))
        hire(store, gone)
        store.retire([gone], now=T0)
        hire(store, WORKER, OTHER)
        wanted = [Ask(new_id(), 5), Ask(dead, 5), Ask(WORKER, 2), Ask(gone, 5), Ask(OTHER, 2)]
        step = store.deal([], DealRequest(wanted, ordered_lanes(store)), now=at(1))
        assert [claim.worker for claim in step.claims] == [WORKER, OTHER, WORKER]
        assert ids_of(step.claims) == ids

    def test_a_deal_to_nobody_claims_nothing(self, store: Store) -> None:
        id = put_one(store)
        assert deal(store) == []
        assert deal(store, Ask(WORKER, 0)) == []
        assert store.deal([], DealRequest([Ask(new_id(), 3)], ordered_lanes(store)), now=at(1)).claims == []
        assert get_one(store, id).state is S.PENDING

    def test_a_deal_finishes_jobs_of_any_workers(self, store: Store) -> None:
        mine, theirs = put(store, a_job(), a_job())
        ends = [*store.claim(asks(store, WORKER, store.lanes(), 1), now=T0)]
        ends += store.claim(asks(store, OTHER, store.lanes(), 1), now=T0)
        new = put_one(store)
        finishes = [Finish(ends[0], COMPLETED, '"r"'), Finish(ends[1], FAILED)]
        assert ids_of(deal(store, Ask(OTHER, 5), finishes=finishes)) == [new]
        assert (get_one(store, mine).state, get_one(store, mine).result) == (S.COMPLETED, '"r"')
        assert get_one(store, theirs).state is S.FAILED

    def test_a_deal_returns_the_lost_ids_and_claims_all_the_same(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        id = put_one(store)
        forged = claim._replace(worker=OTHER)
        hire(store, OTHER)
        step = store.deal(
            [Finish(forged, COMPLETED)], DealRequest([Ask(OTHER, 1)], ordered_lanes(store)), now=at(1)
        )
        assert (step.lost, ids_of(step.claims)) == (frozenset({claim.id}), [id])
        assert get_one(store, claim.id).state is S.RUNNING

    def test_a_deal_finishes_even_if_it_claims_nothing(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        step = store.deal([Finish(claim, COMPLETED)], DealRequest([], []), now=at(1))
        assert (step.lost, step.claims) == (frozenset(), [])
        assert get_one(store, claim.id).state is S.COMPLETED

    def test_a_deal_claims_only_the_given_tasks_lanes_and_quotas(self, store: Store) -> None:
        put(store, a_job("a", queue="x"), a_job("b", queue="x"), a_job("a", queue="y"), a_job("a", queue="y"))
        hire(store, WORKER, OTHER)
        lanes = [lane._replace(quota=1) for lane in ordered_lanes(store)]
        step = store.deal([], DealRequest([Ask(WORKER, 9), Ask(OTHER, 9)], lanes, ["a"]), now=at(1))
        assert sorted((claim.task, claim.queue) for claim in step.claims) == [("a", "x"), ("a", "y")]

    def test_a_suspect_is_dealt_without_a_start(self, store: Store) -> None:
        suspect = put_one(store)
        finish_all(store, [claim_one(store)], CRASHED)
        other = put_one(store)
        claims = {claim.id: claim for claim in deal(store, Ask(WORKER, 1), Ask(OTHER, 1))}
        assert (claims[suspect].state, claims[other].state) == (S.CLAIMED, S.RUNNING)

    @pytest.mark.parametrize("limit", [1, 3])
    def test_a_deal_counts_limits(self, store: Store, limit: int) -> None:
        put(store, *[a_job(limits=("x",)) for _ in range(5)])
        hire(store, WORKER, OTHER)
        request = DealRequest(
            [Ask(WORKER, 2), Ask(OTHER, 2)], store.gates(), rules={"x": at_once("x", limit)}
        )
        claims = store.deal([], request, now=at(1)).claims
        assert [claim.worker for claim in claims] == [WORKER, OTHER, WORKER][:limit]
        assert {claim.limits for claim in claims} == {("x",)}
        assert used(store, "x") == [limit]
        again = store.deal([Finish(claims[-1], COMPLETED)], request, now=at(2))
        assert (len(again.claims), used(store, "x")) == (1, [limit])

    def test_a_dealt_job_releases_a_key_held_until_the_claim(self, store: Store) -> None:
        put_one(store, unique=UniqueHold("key", until_claimed=True))
        (claim,) = deal(store, Ask(OTHER, 2), Ask(WORKER, 2))
        assert claim.unique_key is None
        assert store.enqueue([a_job(unique=UniqueHold("key"))], now=at(2))[0].created

    def test_a_deal_enqueues_what_follows(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        hire(store, OTHER)
        finish = Finish(claim, COMPLETED, then=(a_job("next"),))
        request = DealRequest([Ask(OTHER, 1)], [Lane("default", "default", 0)])
        (follower,) = store.deal([finish], request, now=at(1)).claims
        assert (follower.task, follower.worker) == ("next", OTHER)

    def test_two_deals_never_give_the_same_job(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(12)])
        first = deal(store, Ask(WORKER, 3), Ask(OTHER, 3))
        second = deal(store, Ask(WORKER, 3), Ask(OTHER, 3))
        assert sorted(ids_of(first) + ids_of(second)) == sorted(ids)
        assert [job.worker for job in store.get(ids, tenant=ALL_TENANTS)].count(WORKER) == 6
