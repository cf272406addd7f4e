"""Laws of follow-up jobs, which are written with the completion or not at all."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Details, Finish, Transition, UniqueHold
from tidemill.domain.limits import Rule
from tidemill.domain.records import AuditEntry
from tidemill.domain.states import JobState
from tidemill.errors import JobExists
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    BACKS,
    ENDS,
    HOUR,
    a_job,
    at,
    claim_all,
    claim_one,
    get_one,
    ids_of,
    put,
    put_one,
    together,
    wants,
)

S = JobState

OTHER_EXITS = [*(ENDS[state] for state in sorted(ENDS) if state is not S.COMPLETED), *BACKS.values()]


def exists(store: Store, *ids: UUID) -> list[bool]:
    """Return which of these jobs are stored."""
    stored = {job.id for job in store.get(ids, tenant=ALL_TENANTS)}
    return [id in stored for id in ids]


class FollowingLaws:
    """Follow-up jobs of a finish (``Finish.then``)."""

    def test_a_completed_job_enqueues_its_follow_up_jobs(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        details = Details(parent_id=claim.id, correlation_id="c-1")
        first, second = a_job("next", args='{"n":1}', details=details), a_job("later", delay=HOUR)
        assert store.finish([Finish(claim, COMPLETED, then=(first, second))], now=at(5)) == frozenset()
        assert get_one(store, claim.id).state is S.COMPLETED
        job = get_one(store, first.id)
        assert (job.state, job.run_at, job.created_at, job.args) == (S.PENDING, at(5), at(5), '{"n":1}')
        assert (job.details.parent_id, job.details.correlation_id) == (claim.id, "c-1")
        assert (get_one(store, second.id).state, get_one(store, second.id).run_at) == (
            S.SCHEDULED,
            at(5) + HOUR,
        )
        assert ids_of(claim_all(store, now=at(6))) == [first.id]

    @pytest.mark.parametrize("transition", OTHER_EXITS, ids=lambda transition: str(transition.state))
    def test_only_completion_enqueues_follow_up_jobs(self, store: Store, transition: Transition) -> None:
        claim = claim_one(store, put_one(store))
        job = a_job("next")
        assert store.finish([Finish(claim, transition, then=(job,))], now=at(5)) == frozenset()
        assert exists(store, job.id) == [False]

    def test_a_lost_finish_enqueues_no_follow_up_jobs(self, store: Store) -> None:
        mine, other = (claim_one(store, put_one(store)) for _ in range(2))
        kept, dropped = a_job("next"), a_job("next")
        stale = other._replace(token=other.token + 1)
        finishes = [Finish(mine, COMPLETED, then=(kept,)), Finish(stale, COMPLETED, then=(dropped,))]
        assert store.finish(finishes, now=at(5)) == {other.id}
        assert exists(store, kept.id, dropped.id) == [True, False]

    def test_a_repeated_finish_enqueues_follow_up_jobs_once(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        job = a_job("next")
        finish = Finish(claim, COMPLETED, then=(job,))
        assert store.finish([finish], now=at(5)) == frozenset()
        assert store.finish([finish], now=at(6)) == {claim.id}
        assert ids_of(claim_all(store, now=at(7))) == [job.id]

    def test_a_step_enqueues_follow_up_jobs(self, store: Store) -> None:
        first, waiting = put(store, a_job(), a_job())
        (claim,) = claim_all(store, limit=1)
        job = a_job("next")
        step = store.step([Finish(claim, COMPLETED, then=(job,))], wants(store), now=at(5))
        assert step.lost == frozenset()
        assert waiting in ids_of(step.claims)
        left = {*ids_of(step.claims), *ids_of(claim_all(store, now=at(6)))}
        assert left == {waiting, job.id}
        assert get_one(store, first).state is S.COMPLETED

    def test_a_step_enqueues_follow_up_jobs_of_every_finish(self, store: Store) -> None:
        put(store, *(a_job() for _ in range(20)))
        claims = claim_all(store)
        brought = {claim.id: (a_job("next"), a_job("next", queue="other")) for claim in claims[::2]}
        finishes = [Finish(claim, COMPLETED, then=brought.get(claim.id, ())) for claim in claims]
        assert store.step(finishes, wants(store), now=at(5)).lost == frozenset()
        assert all(exists(store, *(job.id for jobs in brought.values() for job in jobs)))

    def test_thousands_of_follow_up_jobs_are_enqueued(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        jobs = tuple(a_job("next", args=f'{{"n":{n}}}') for n in range(2_500))
        assert store.finish([Finish(claim, COMPLETED, then=jobs)], now=at(5)) == frozenset()
        assert sum(store.count(JobFilter(ALL_TENANTS, tasks=frozenset({"next"}))).values()) == 2_500

    def test_a_follow_up_job_with_a_held_key_is_left_out(self, store: Store) -> None:
        hold = UniqueHold("k")
        claim = claim_one(store, put_one(store))
        holder = put_one(store, "next", unique=hold)
        same, other = a_job("next", unique=hold), a_job("next", unique=UniqueHold("free"))
        assert store.finish([Finish(claim, COMPLETED, then=(same, other))], now=at(5)) == frozenset()
        assert exists(store, holder, same.id, other.id) == [True, False, True]

    def test_a_follow_up_job_can_take_over_the_unique_key(self, store: Store) -> None:
        hold = UniqueHold("chain")
        claim = claim_one(store, put_one(store, unique=hold))
        following = a_job(unique=hold)
        assert store.finish([Finish(claim, COMPLETED, then=(following,))], now=at(5)) == frozenset()
        assert get_one(store, following.id).unique_key == "chain"

    def test_a_stored_follow_up_id_rolls_back_the_batch(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        stored = put_one(store, "next", delay=HOUR)
        fresh = a_job("next")
        with pytest.raises(JobExists):
            store.finish([Finish(claim, COMPLETED, then=(fresh, a_job(id=stored)))], now=at(5))
        assert get_one(store, claim.id).state is S.RUNNING
        assert exists(store, fresh.id) == [False]

    def test_only_created_follow_up_jobs_are_audited(self, store: Store) -> None:
        hold = UniqueHold("k")
        claim = claim_one(store, put_one(store))
        put_one(store, "next", unique=hold)
        same, other = a_job("next", unique=hold), a_job("next")
        audit = tuple(
            (job.id, AuditEntry("ann", "job.enqueued", f"job:{job.id}", "default", None, {"task": "next"}))
            for job in (same, other)
        )
        store.finish([Finish(claim, COMPLETED, then=(same, other), audit=audit)], now=at(5))
        records = store.audit(tenant=ALL_TENANTS)
        assert [record.entry.subject for record in records] == [f"job:{other.id}"]

    def test_a_limited_job_frees_its_slot_and_enqueues_follow_ups(self, store: Store) -> None:
        store.put_rules([Rule("slow", max=1)])
        first, second = put(store, a_job(limits=("slow",)), a_job(limits=("slow",)))
        (claim,) = claim_all(store, limit=1)
        assert claim.id == first
        job = a_job("next", limits=("slow",))
        request = wants(store)._replace(rules={"slow": Rule("slow", max=1)})
        step = store.step([Finish(claim, COMPLETED, then=(job,))], request, now=at(5))
        assert ids_of(step.claims) == [second]
        assert get_one(store, job.id).state is S.PENDING

    def test_one_of_two_concurrent_finishes_enqueues_follow_ups(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        jobs = [a_job("next"), a_job("next")]
        finishes = [[Finish(claim, COMPLETED, then=(job,))] for job in jobs]
        lost = together([partial(store.finish, finish, now=at(5)) for finish in finishes])
        assert sorted(map(len, lost)) == [0, 1]
        assert exists(store, *ids_of(jobs)) == [not ids for ids in lost]
