"""Laws of enqueue, promote and lanes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tidemill.domain.cluster import Pulse
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Enqueued, NewJob, UniqueHold
from tidemill.domain.lanes import Lane, LaneKey
from tidemill.domain.states import JobState
from tidemill.errors import JobExists
from tidemill.stores.base import Promoted, Store
from tidemill.testing.conformance.kit import (
    ASLEEP,
    HOUR,
    LATER,
    SECOND,
    SUSPENDED,
    T0,
    TICK,
    WORKER,
    a_job,
    asks,
    at,
    bring,
    claim_all,
    claim_one,
    executions_of,
    finish_all,
    get_one,
    ids_of,
    put,
    put_one,
    snapshot,
)

S = JobState
EVERY = JobFilter(ALL_TENANTS)


class EnqueueLaws:
    """A job is enqueued once, and a batch completely or not at all."""

    def test_a_new_job_is_pending_with_zero_counters(self, store: Store) -> None:
        id = put_one(store)
        job = get_one(store, id)
        assert (job.state, job.attempt, job.crashes, job.token) == (S.PENDING, 0, 0, 0)
        assert (job.run_at, job.created_at) == (T0, T0)
        assert (job.claimed_at, job.started_at, job.finished_at, job.worker) == (None, None, None, None)
        assert (job.result, job.error, job.cancel_reason, job.progress) == (None, None, None, None)
        assert executions_of(store, id) == []

    def test_a_batch_is_stored_completely(self, store: Store) -> None:
        put(store, *[a_job(f"task-{n}") for n in range(50)])
        assert len(store.get(ids_of(claim_all(store)), tenant=ALL_TENANTS)) == 50

    def test_a_run_at_of_exactly_now_is_due(self, store: Store) -> None:
        job = get_one(store, put_one(store, run_at=T0))
        assert (job.state, job.run_at) == (S.PENDING, T0)

    def test_a_run_at_one_microsecond_ahead_is_scheduled(self, store: Store) -> None:
        job = get_one(store, put_one(store, run_at=T0 + TICK))
        assert (job.state, job.run_at) == (S.SCHEDULED, T0 + TICK)

    def test_a_run_at_in_the_past_is_pending_and_keeps_its_instant(self, store: Store) -> None:
        job = get_one(store, put_one(store, run_at=at(-3600)))
        assert (job.state, job.run_at, job.created_at) == (S.PENDING, at(-3600), T0)

    def test_a_delay_counts_from_now(self, store: Store) -> None:
        job = get_one(store, put_one(store, delay=TICK))
        assert (job.state, job.run_at) == (S.SCHEDULED, T0 + TICK)

    def test_a_delay_of_zero_is_due(self, store: Store) -> None:
        job = get_one(store, put_one(store, delay=timedelta(0)))
        assert (job.state, job.run_at) == (S.PENDING, T0)

    @pytest.mark.parametrize("state", list(JobState))
    def test_a_stored_id_is_refused_in_any_state(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        before = snapshot(store, job.id)
        with pytest.raises(JobExists):
            store.enqueue([a_job(id=job.id)], now=T0)
        assert snapshot(store, job.id) == before

    @pytest.mark.parametrize("state", list(JobState))
    def test_one_refused_id_refuses_the_whole_batch(self, store: Store, state: JobState) -> None:
        taken = bring(store, state).id
        batch = [a_job(), a_job(delay=HOUR), a_job(unique=UniqueHold("k")), a_job(id=taken), a_job()]
        with pytest.raises(JobExists):
            store.enqueue(batch, now=T0)
        assert ids_of(store.get([job.id for job in batch], tenant=ALL_TENANTS)) == [taken]
        assert store.enqueue([a_job(unique=UniqueHold("k"))], now=T0)[0].created

    @pytest.mark.parametrize("state", list(JobState))
    @pytest.mark.parametrize("place", [0, 20, 39])
    def test_one_refused_id_anywhere_refuses_a_large_batch(
        self, store: Store, state: JobState, place: int
    ) -> None:
        # Ids rise with time: the stored id may be older or newer than the rest.
        before = [a_job() for _ in range(place)]
        taken = bring(store, state).id
        batch = [*before, a_job(id=taken), *(a_job() for _ in range(39 - place))]
        with pytest.raises(JobExists):
            store.enqueue(batch, now=T0)
        assert ids_of(store.get([job.id for job in batch], tenant=ALL_TENANTS)) == [taken]
        assert all(answer.created for answer in store.enqueue([a_job() for _ in range(40)], now=T0))

    def test_an_id_is_unique_across_tenants(self, store: Store) -> None:
        id = put_one(store, tenant="a")
        with pytest.raises(JobExists):
            store.enqueue([a_job(id=id, tenant="b")], now=T0)

    def test_empty_batches_do_nothing(self, store: Store) -> None:
        id = put_one(store)
        before = snapshot(store, id)
        assert store.enqueue([], now=T0) == []
        assert store.start([], now=T0) == store.report([], now=T0) == store.finish([], now=T0) == frozenset()
        assert store.log([]) == store.move([], now=T0) == store.forget([]) == frozenset()
        assert store.request_cancel([], tenant=ALL_TENANTS, reason="x") == store.change([]) == frozenset()
        assert store.delete([], tenant=ALL_TENANTS) == frozenset()
        assert store.get([], tenant=ALL_TENANTS) == []
        assert store.executions([], tenant=ALL_TENANTS) == []
        assert store.archived([], tenant=ALL_TENANTS) == []
        assert store.record([], now=T0) == []
        assert store.pause([], now=T0) == store.resume([]) == []
        assert store.drop_settings([]) == store.drain([]) == frozenset()
        assert store.beat([], lease=SECOND, now=T0) == Pulse(frozenset(), frozenset(), [])
        store.put_archive([], now=T0)
        store.put_settings([], now=T0)
        store.retire([], now=T0)
        lost, claims = store.step([], asks(store, WORKER, [], 10), now=T0)
        assert (lost, claims) == (frozenset(), [])
        assert snapshot(store, id) == before


class MadeLaws:
    """Jobs from an iterator are enqueued completely or not at all."""

    MANY = 450

    def test_an_iterator_of_jobs_is_enqueued_like_a_list(self, store: Store) -> None:
        jobs = [a_job(args=f'{{"n":{n}}}') for n in range(self.MANY)]
        assert store.enqueue(iter(jobs), now=T0) == [Enqueued(job.id, True) for job in jobs]
        claims = claim_all(store)
        assert [(claim.id, claim.args) for claim in claims] == [(job.id, job.args) for job in jobs]

    @pytest.mark.parametrize("count", [0, 1, 7, 200, 201])
    def test_short_iterators_are_enqueued(self, store: Store, count: int) -> None:
        jobs = [a_job() for _ in range(count)]
        assert store.enqueue(iter(jobs), now=T0) == [Enqueued(job.id, True) for job in jobs]
        assert sorted(ids_of(claim_all(store))) == sorted(job.id for job in jobs)

    @pytest.mark.parametrize("good", [3, 300, 420])
    def test_an_iterator_that_raises_enqueues_nothing(self, store: Store, good: int) -> None:
        def made() -> Iterator[NewJob]:
            for _ in range(good):
                yield a_job()
            raise LookupError("no more")

        before = store.count(EVERY)
        with pytest.raises(LookupError, match="no more"):
            store.enqueue(made(), now=T0)
        assert store.count(EVERY) == before
        put_one(store)

    def test_an_iterator_with_a_stored_id_enqueues_nothing(self, store: Store) -> None:
        stored = a_job()
        put(store, stored)
        finish_all(store, [claim_one(store, stored.id)])
        jobs = [a_job() for _ in range(self.MANY)]
        before = store.count(EVERY)
        with pytest.raises(JobExists, match=str(stored.id)):
            store.enqueue(iter([*jobs, stored]), now=T0)
        assert store.count(EVERY) == before
        store.enqueue(iter(jobs), now=T0)
        assert len(claim_all(store)) == self.MANY

    def test_an_iterator_of_different_jobs_is_enqueued(self, store: Store) -> None:
        jobs = [a_job() for _ in range(250)]
        jobs += [a_job("other", queue="else"), a_job(delay=HOUR), a_job(unique=UniqueHold("key")), a_job()]
        held = a_job(unique=UniqueHold("key"))
        answers = store.enqueue(iter([*jobs, held]), now=T0)
        assert answers == [Enqueued(job.id, True) for job in jobs] + [Enqueued(jobs[-2].id, False)]
        assert len(claim_all(store)) == len(jobs) - 1

    def test_an_iterator_is_rolled_back_with_its_transaction(self, store: Store) -> None:
        before = store.count(EVERY)
        with contextlib.suppress(LookupError), store.transaction():
            assert len(store.enqueue((a_job() for _ in range(self.MANY)), now=T0)) == self.MANY
            raise LookupError
        assert store.count(EVERY) == before


class PromoteLaws:
    """Due jobs become pending, the earliest first."""

    def test_promote_does_nothing_without_scheduled_jobs(self, store: Store) -> None:
        put_one(store)
        assert store.promote(100, now=T0) == Promoted(0, frozenset(), None)

    def test_a_job_is_promoted_at_exactly_its_time_and_not_before(self, store: Store) -> None:
        id = put_one(store, delay=HOUR)
        assert store.promote(100, now=T0 + HOUR - TICK) == Promoted(0, frozenset(), T0 + HOUR)
        assert get_one(store, id).state is S.SCHEDULED
        assert store.promote(100, now=T0 + HOUR).moved == 1
        job = get_one(store, id)
        assert (job.state, job.run_at, job.created_at) == (S.PENDING, T0 + HOUR, T0)

    def test_a_scheduled_job_cannot_be_claimed_before_it_is_promoted(self, store: Store) -> None:
        put_one(store, delay=SECOND)
        lane = Lane("default", "default", 0)
        assert store.claim(asks(store, WORKER, [lane], 10), now=at(10)) == []

    def test_the_earliest_jobs_are_promoted_first_within_the_limit(self, store: Store) -> None:
        ids = {seconds: put_one(store, delay=seconds * SECOND) for seconds in (30, 10, 20)}
        assert store.promote(1, now=at(60)) == Promoted(
            1, frozenset({LaneKey("default", "default", 0)}), at(20)
        )
        assert get_one(store, ids[10]).state is S.PENDING
        assert store.promote(1, now=at(60)) == Promoted(
            1, frozenset({LaneKey("default", "default", 0)}), at(30)
        )
        assert get_one(store, ids[20]).state is S.PENDING
        assert get_one(store, ids[30]).state is S.SCHEDULED

    def test_promoted_jobs_are_ordered_by_time_in_their_lane(self, store: Store) -> None:
        ids = {seconds: put_one(store, delay=seconds * SECOND) for seconds in (30, 10, 20)}
        assert store.promote(100, now=at(60)).moved == 3
        assert ids_of(claim_all(store)) == [ids[10], ids[20], ids[30]]

    def test_promote_returns_the_lanes_of_promoted_jobs(self, store: Store) -> None:
        put(
            store,
            a_job(queue="a", tenant="t", priority=5, delay=SECOND),
            a_job(queue="b", tenant="u", priority=-5, delay=SECOND),
            a_job(queue="c", delay=HOUR),
        )
        promoted = store.promote(100, now=at(1))
        assert promoted == Promoted(2, frozenset({LaneKey("a", "t", 5), LaneKey("b", "u", -5)}), T0 + HOUR)
        assert {lane.key for lane in store.lanes()} == promoted.lanes

    def test_promote_can_return_every_queue_with_pending_jobs(self, store: Store) -> None:
        put(
            store,
            a_job(queue="a", tenant="t", priority=5),
            a_job(queue="a", tenant="u"),
            a_job(queue="b", limits=("task/x",)),
            a_job(queue="c", delay=SECOND),
            a_job(queue="d", delay=HOUR),
        )
        assert store.promote(100, now=T0).queues == frozenset()  # not requested
        assert store.promote(100, look=True, now=T0).queues == {"a", "b"}
        looked = store.promote(100, look=True, now=at(1))
        assert looked.moved == 1
        assert looked.queues == {"a", "b", "c"}

    def test_a_job_waiting_with_a_delay_is_promoted_like_a_scheduled_one(self, store: Store) -> None:
        id = put_one(store)
        finish_all(store, [claim_one(store)], ASLEEP)
        assert store.promote(100, now=T0) == Promoted(0, frozenset(), T0 + HOUR)
        assert store.promote(100, now=T0 + HOUR).moved == 1
        assert get_one(store, id).state is S.PENDING

    def test_a_job_waiting_without_a_delay_is_never_promoted(self, store: Store) -> None:
        id = put_one(store)
        finish_all(store, [claim_one(store)], SUSPENDED)
        assert store.promote(100, now=T0 + 1000 * HOUR) == Promoted(0, frozenset(), None)
        assert get_one(store, id).state is S.WAITING

    def test_a_job_in_review_is_never_promoted(self, store: Store) -> None:
        bring(store, S.REVIEW_NEEDED)
        assert store.promote(100, now=T0 + 1000 * HOUR) == Promoted(0, frozenset(), None)

    def test_a_retried_job_is_promoted_when_its_wait_is_over(self, store: Store) -> None:
        id = put_one(store)
        finish_all(store, [claim_one(store)], LATER)
        assert store.promote(100, now=T0 + HOUR).moved == 1
        assert claim_one(store, id).attempt == 2

    def test_promoting_counts_no_attempt(self, store: Store) -> None:
        id = put_one(store, delay=SECOND)
        store.promote(100, now=at(1))
        assert (get_one(store, id).attempt, get_one(store, id).token) == (0, 0)


class LaneLaws:
    """A lane is one queue, tenant and priority with pending jobs."""

    def test_an_empty_store_has_no_lanes(self, store: Store) -> None:
        assert store.lanes() == []

    def test_each_queue_tenant_and_priority_is_a_lane(self, store: Store) -> None:
        keys = {LaneKey(q, t, p) for q in ("a", "b") for t in ("t", "u") for p in (-100, 0, 100)}
        put(
            store,
            *[a_job(queue=key.queue, tenant=key.tenant, priority=key.priority) for key in keys for _ in "xy"],
        )
        lanes = store.lanes()
        assert len(lanes) == len(keys)
        assert {lane.key for lane in lanes} == keys

    def test_only_pending_jobs_make_a_lane(self, store: Store) -> None:
        for state in JobState:
            bring(store, state, queue=f"q-{state}")
        assert [lane.queue for lane in store.lanes()] == ["q-pending"]

    def test_lanes_can_be_filtered_by_queue(self, store: Store) -> None:
        put(store, a_job(queue="a"), a_job(queue="b"), a_job(queue="c"))
        assert {lane.queue for lane in store.lanes(["a", "c", "none"])} == {"a", "c"}
        assert store.lanes([]) == []

    def test_low_is_the_lowest_pending_sequence_number(self, store: Store) -> None:
        put(store, a_job(), a_job(), a_job())
        numbers = []
        for _ in range(3):
            (lane,) = store.lanes()
            (claim,) = store.claim(asks(store, WORKER, [lane], 1), now=T0)
            assert claim.seq == lane.low
            numbers.append(lane.low)
        assert numbers == sorted(set(numbers))

    def test_a_claim_takes_nothing_below_low(self, store: Store) -> None:
        first, second, third = put(store, a_job(), a_job(), a_job())
        (lane,) = store.lanes()
        store.claim(asks(store, WORKER, [lane], 1), now=T0)
        (lane,) = store.lanes()
        claims = store.claim(asks(store, WORKER, [lane._replace(low=lane.low + 1)], 10), now=T0)
        assert ids_of(claims) == [third]
        assert get_one(store, first).state is S.RUNNING
        assert get_one(store, second).state is S.PENDING
