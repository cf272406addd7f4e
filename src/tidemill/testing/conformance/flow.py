"""Laws of the way in: enqueue, promote and lanes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Enqueued, NewJob, UniqueHold
from tidemill.domain.lanes import ClaimRequest, Lane, LaneKey
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
    """A job comes in once, and whole batches or none."""

    def test_a_new_job_is_pending_at_once_with_nothing_counted(self, store: Store) -> None:
        id = put_one(store)
        job = get_one(store, id)
        assert (job.state, job.attempt, job.crashes, job.token) == (S.PENDING, 0, 0, 0)
        assert (job.run_at, job.created_at) == (T0, T0)
        assert (job.claimed_at, job.started_at, job.finished_at, job.worker) == (None, None, None, None)
        assert (job.result, job.error, job.cancel_reason, job.progress) == (None, None, None, None)
        assert executions_of(store, id) == []

    def test_a_batch_is_answered_in_its_order(self, store: Store) -> None:
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
    def test_an_id_that_is_stored_in_any_state_is_refused(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        before = snapshot(store, job.id)
        with pytest.raises(JobExists):
            store.enqueue([a_job(id=job.id)], now=T0)
        assert snapshot(store, job.id) == before

    @pytest.mark.parametrize("state", list(JobState))
    def test_one_refused_id_keeps_its_whole_batch_out(self, store: Store, state: JobState) -> None:
        taken = bring(store, state).id
        batch = [a_job(), a_job(delay=HOUR), a_job(unique=UniqueHold("k")), a_job(id=taken), a_job()]
        with pytest.raises(JobExists):
            store.enqueue(batch, now=T0)
        assert ids_of(store.get([job.id for job in batch], tenant=ALL_TENANTS)) == [taken]
        assert store.enqueue([a_job(unique=UniqueHold("k"))], now=T0)[0].created

    @pytest.mark.parametrize("state", list(JobState))
    @pytest.mark.parametrize("place", [0, 20, 39])
    def test_one_refused_id_keeps_a_large_batch_out_wherever_it_is(
        self, store: Store, state: JobState, place: int
    ) -> None:
        # Ids rise with time: one that is stored may be older than the rest, or newer.
        before = [a_job() for _ in range(place)]
        taken = bring(store, state).id
        batch = [*before, a_job(id=taken), *(a_job() for _ in range(39 - place))]
        with pytest.raises(JobExists):
            store.enqueue(batch, now=T0)
        assert ids_of(store.get([job.id for job in batch], tenant=ALL_TENANTS)) == [taken]
        assert all(answer.created for answer in store.enqueue([a_job() for _ in range(40)], now=T0))

    def test_an_id_cannot_be_taken_by_another_tenant_either(self, store: Store) -> None:
        id = put_one(store, tenant="a")
        with pytest.raises(JobExists):
            store.enqueue([a_job(id=id, tenant="b")], now=T0)

    def test_empty_batches_do_nothing(self, store: Store) -> None:
        id = put_one(store)
        before = snapshot(store, id)
        assert store.enqueue([], now=T0) == []
        assert store.start([], now=T0) == store.report([], now=T0) == store.finish([], now=T0) == frozenset()
        assert store.log([]) == store.move([], now=T0) == store.forget([]) == frozenset()
        assert store.request_cancel([], tenant=ALL_TENANTS, reason="x") == frozenset()
        assert store.delete([], tenant=ALL_TENANTS) == frozenset()
        assert store.get([], tenant=ALL_TENANTS) == []
        assert store.executions([], tenant=ALL_TENANTS) == []
        assert store.archived([], tenant=ALL_TENANTS) == []
        assert store.record([], now=T0) == []
        assert store.pause([], now=T0) == store.resume([]) == []
        assert store.drop_settings([]) == store.drain([]) == frozenset()
        assert store.beat([], lease=SECOND, now=T0) == (frozenset(), frozenset(), [])
        store.put_archive([], now=T0)
        store.put_settings([], now=T0)
        store.retire([], now=T0)
        lost, claims = store.step([], ClaimRequest(WORKER, [], 10), now=T0)
        assert (lost, claims) == (frozenset(), [])
        assert snapshot(store, id) == before


class MadeLaws:
    """Jobs that are made while others are inserted: all of them come in, or none."""

    MANY = 450

    def test_jobs_of_an_iterator_come_in_as_those_of_a_list(self, store: Store) -> None:
        jobs = [a_job(args=f'{{"n":{n}}}') for n in range(self.MANY)]
        assert store.enqueue(iter(jobs), now=T0) == [Enqueued(job.id, True) for job in jobs]
        claims = claim_all(store)
        assert [(claim.id, claim.args) for claim in claims] == [(job.id, job.args) for job in jobs]

    @pytest.mark.parametrize("count", [0, 1, 7, 200, 201])
    def test_so_do_few_of_them(self, store: Store, count: int) -> None:
        jobs = [a_job() for _ in range(count)]
        assert store.enqueue(iter(jobs), now=T0) == [Enqueued(job.id, True) for job in jobs]
        assert sorted(ids_of(claim_all(store))) == sorted(job.id for job in jobs)

    @pytest.mark.parametrize("good", [3, 300, 420])
    def test_what_their_making_raises_leaves_nothing_behind(self, store: Store, good: int) -> None:
        def made() -> Iterator[NewJob]:
            for _ in range(good):
                yield a_job()
            raise LookupError("no more")

        before = store.count(EVERY)
        with pytest.raises(LookupError, match="no more"):
            store.enqueue(made(), now=T0)
        assert store.count(EVERY) == before
        put_one(store)

    def test_where_one_of_them_is_stored_already_none_comes_in(self, store: Store) -> None:
        known = a_job()
        put(store, known)
        finish_all(store, [claim_one(store, known.id)])
        jobs = [a_job() for _ in range(self.MANY)]
        before = store.count(EVERY)
        with pytest.raises(JobExists, match=str(known.id)):
            store.enqueue(iter([*jobs, known]), now=T0)
        assert store.count(EVERY) == before
        store.enqueue(iter(jobs), now=T0)
        assert len(claim_all(store)) == self.MANY

    def test_those_that_differ_come_in_together(self, store: Store) -> None:
        jobs = [a_job() for _ in range(250)]
        jobs += [a_job("other", queue="else"), a_job(delay=HOUR), a_job(unique=UniqueHold("key")), a_job()]
        held = a_job(unique=UniqueHold("key"))
        answers = store.enqueue(iter([*jobs, held]), now=T0)
        assert answers == [Enqueued(job.id, True) for job in jobs] + [Enqueued(jobs[-2].id, False)]
        assert len(claim_all(store)) == len(jobs) - 1

    def test_within_a_transaction_they_come_in_with_the_rest(self, store: Store) -> None:
        before = store.count(EVERY)
        with contextlib.suppress(LookupError), store.transaction():
            assert len(store.enqueue((a_job() for _ in range(self.MANY)), now=T0)) == self.MANY
            raise LookupError
        assert store.count(EVERY) == before


class PromoteLaws:
    """What is due becomes pending, the earliest first."""

    def test_nothing_scheduled_means_nothing_moved_and_no_next_time(self, store: Store) -> None:
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
        assert store.claim(ClaimRequest(WORKER, [lane], 10), now=at(10)) == []

    def test_the_earliest_are_promoted_first_and_the_limit_holds(self, store: Store) -> None:
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

    def test_what_is_promoted_together_stands_in_its_lane_by_time(self, store: Store) -> None:
        ids = {seconds: put_one(store, delay=seconds * SECOND) for seconds in (30, 10, 20)}
        assert store.promote(100, now=at(60)).moved == 3
        assert ids_of(claim_all(store)) == [ids[10], ids[20], ids[30]]

    def test_the_lanes_of_what_was_promoted_are_named(self, store: Store) -> None:
        put(
            store,
            a_job(queue="a", tenant="t", priority=5, delay=SECOND),
            a_job(queue="b", tenant="u", priority=-5, delay=SECOND),
            a_job(queue="c", delay=HOUR),
        )
        promoted = store.promote(100, now=at(1))
        assert promoted == Promoted(2, frozenset({LaneKey("a", "t", 5), LaneKey("b", "u", -5)}), T0 + HOUR)
        assert {lane.key for lane in store.lanes()} == promoted.lanes

    def test_whoever_looks_is_told_every_queue_with_pending_jobs_whatever_limits_they_have(
        self, store: Store
    ) -> None:
        put(
            store,
            a_job(queue="a", tenant="t", priority=5),
            a_job(queue="a", tenant="u"),
            a_job(queue="b", limits=("task/x",)),
            a_job(queue="c", delay=SECOND),
            a_job(queue="d", delay=HOUR),
        )
        assert store.promote(100, now=T0).queues == frozenset()  # which was not asked for
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

    def test_promoting_is_no_claim(self, store: Store) -> None:
        id = put_one(store, delay=SECOND)
        store.promote(100, now=at(1))
        assert (get_one(store, id).attempt, get_one(store, id).token) == (0, 0)


class LaneLaws:
    """A lane is one queue, tenant and priority with pending jobs in it."""

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

    def test_lanes_can_be_asked_for_by_queue(self, store: Store) -> None:
        put(store, a_job(queue="a"), a_job(queue="b"), a_job(queue="c"))
        assert {lane.queue for lane in store.lanes(["a", "c", "none"])} == {"a", "c"}
        assert store.lanes([]) == []

    def test_low_is_the_lowest_number_that_is_pending(self, store: Store) -> None:
        put(store, a_job(), a_job(), a_job())
        numbers = []
        for _ in range(3):
            (lane,) = store.lanes()
            (claim,) = store.claim(ClaimRequest(WORKER, [lane], 1), now=T0)
            assert claim.seq == lane.low
            numbers.append(lane.low)
        assert numbers == sorted(set(numbers))

    def test_a_claim_does_not_look_below_low(self, store: Store) -> None:
        first, second, third = put(store, a_job(), a_job(), a_job())
        (lane,) = store.lanes()
        store.claim(ClaimRequest(WORKER, [lane], 1), now=T0)
        (lane,) = store.lanes()
        claims = store.claim(ClaimRequest(WORKER, [lane._replace(low=lane.low + 1)], 10), now=T0)
        assert ids_of(claims) == [third]
        assert get_one(store, first).state is S.RUNNING
        assert get_one(store, second).state is S.PENDING
