"""Laws of unique keys: one holder per tenant and key, for the configured time."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Enqueued, Move, UniqueHold
from tidemill.domain.states import ENDED, LIVE, JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    ENDS,
    FAILED,
    HOUR,
    LATER,
    SECOND,
    T0,
    TICK,
    a_job,
    at,
    bring,
    claim_one,
    finish_all,
    get_one,
    patiently,
    put,
    put_one,
    retry,
    snapshot,
    together,
)

S = JobState

UNTIL_END = UniqueHold("key")
UNTIL_CLAIM = UniqueHold("key", until_claimed=True)
FOR_A_MINUTE = UniqueHold("key", window=60 * SECOND)
CLAIM_OR_A_MINUTE = UniqueHold("key", until_claimed=True, window=60 * SECOND)


def _holder(
    store: Store, hold: UniqueHold = UNTIL_END, *, tenant: str = "default", now: datetime = T0
) -> UUID | None:
    """Return the holder of the key; a job created by the query is deleted again."""
    job = a_job(unique=hold, tenant=tenant)
    (answer,) = store.enqueue([job], now=now)
    if not answer.created:
        assert answer.id != job.id
        assert store.get([job.id], tenant=ALL_TENANTS) == []
        return answer.id
    assert answer.id == job.id
    store.move([Move(job.id, tenant, frozenset({S.PENDING}), S.CANCELLED)], now=now)
    assert store.delete([job.id], tenant=tenant) == {job.id}
    return None


class UniqueLaws:
    """A unique key of a tenant is held by one job."""

    def test_enqueueing_a_held_key_returns_its_holder(self, store: Store) -> None:
        id = put_one(store, unique=UNTIL_END)
        other = a_job(unique=UNTIL_END, delay=HOUR)
        assert store.enqueue([other], now=T0) == [Enqueued(id, False)]
        assert store.get([other.id], tenant=ALL_TENANTS) == []
        assert store.count(JobFilter(ALL_TENANTS)) == {S.PENDING: 1}

    def test_the_key_is_shown_with_its_job(self, store: Store) -> None:
        assert get_one(store, put_one(store, unique=UNTIL_END)).unique_key == "key"
        assert get_one(store, put_one(store)).unique_key is None

    def test_another_key_is_free(self, store: Store) -> None:
        put_one(store, unique=UNTIL_END)
        put_one(store, unique=UniqueHold("KEY"))
        put_one(store, unique=UniqueHold("key "))

    def test_keys_of_different_tenants_are_independent(self, store: Store) -> None:
        a = put_one(store, unique=UNTIL_END, tenant="a")
        b = put_one(store, unique=UNTIL_END, tenant="b")
        assert _holder(store, tenant="a") == a
        assert _holder(store, tenant="b") == b
        assert _holder(store, tenant="c") is None

    def test_task_and_queue_are_not_part_of_the_key(self, store: Store) -> None:
        id = put_one(store, "one", queue="a", unique=UNTIL_END)
        assert store.enqueue([a_job("two", queue="b", unique=UNTIL_END)], now=T0) == [Enqueued(id, False)]

    def test_the_first_job_of_a_batch_gets_the_key(self, store: Store) -> None:
        batch = [
            a_job(),
            a_job(unique=UNTIL_END),
            a_job(unique=UNTIL_END),
            a_job(unique=UNTIL_END, tenant="b"),
        ]
        batch += [a_job(unique=UniqueHold("other")), a_job(unique=UNTIL_END, delay=HOUR)]
        first = batch[1].id
        assert store.enqueue(batch, now=T0) == [
            Enqueued(batch[0].id, True),
            Enqueued(first, True),
            Enqueued(first, False),
            Enqueued(batch[3].id, True),
            Enqueued(batch[4].id, True),
            Enqueued(first, False),
        ]
        assert sum(store.count(JobFilter(ALL_TENANTS)).values()) == 4

    def test_a_batch_with_a_held_key_inserts_the_others(self, store: Store) -> None:
        id = put_one(store, unique=UNTIL_END)
        one, two, three = a_job(), a_job(unique=UNTIL_END), a_job()
        assert store.enqueue([one, two, three], now=T0) == [(one.id, True), (id, False), (three.id, True)]
        assert len(store.get([one.id, two.id, three.id], tenant=ALL_TENANTS)) == 2

    @pytest.mark.parametrize("state", sorted(LIVE))
    def test_a_key_held_until_the_end_is_held_in_every_live_state(
        self, store: Store, state: JobState
    ) -> None:
        job = bring(store, state, unique=UNTIL_END)
        assert _holder(store) == job.id
        assert job.unique_key == "key"

    @pytest.mark.parametrize("state", sorted(ENDED))
    def test_a_key_held_until_the_end_is_free_in_every_final_state(
        self, store: Store, state: JobState
    ) -> None:
        bring(store, state, unique=UNTIL_END)
        put_one(store, unique=UNTIL_END)

    @pytest.mark.parametrize("state", [S.SCHEDULED, S.PENDING])
    def test_a_key_held_until_the_claim_is_held_before_it(self, store: Store, state: JobState) -> None:
        job = bring(store, state, unique=UNTIL_CLAIM)
        assert (_holder(store), job.unique_key) == (job.id, "key")

    @pytest.mark.parametrize("state", [S.CLAIMED, S.RUNNING, S.WAITING, S.REVIEW_NEEDED, *ENDS])
    def test_a_key_held_until_the_claim_is_released_by_the_claim(self, store: Store, state: JobState) -> None:
        job = bring(store, state, unique=UNTIL_CLAIM)
        assert get_one(store, job.id).unique_key is None
        put_one(store, unique=UNTIL_END)

    def test_a_job_without_its_key_runs_next_to_the_new_holder(self, store: Store) -> None:
        old = put_one(store, unique=UNTIL_CLAIM, queue="a")
        claim = claim_one(store, old)
        new = put_one(store, unique=UNTIL_CLAIM, queue="b")
        finish_all(store, [claim], AGAIN)
        assert _holder(store) == new
        finish_all(store, [claim_one(store, old, queues=["a"])], COMPLETED)
        assert _holder(store) == new

    def test_a_scheduled_job_holds_its_key_through_its_promotion(self, store: Store) -> None:
        id = put_one(store, unique=UNTIL_CLAIM, delay=SECOND)
        store.promote(10, now=at(1))
        assert _holder(store) == id

    def test_a_window_holds_the_key_after_the_end(self, store: Store) -> None:
        id = put_one(store, unique=FOR_A_MINUTE)
        finish_all(store, [claim_one(store, id)], now=at(1))
        assert _holder(store, now=at(59)) == id
        assert _holder(store, now=at(60) + TICK) is None

    def test_a_window_holds_the_key_after_the_claim(self, store: Store) -> None:
        id = put_one(store, unique=CLAIM_OR_A_MINUTE)
        claim = claim_one(store, id, now=at(1))
        assert _holder(store, now=at(59)) == id
        assert get_one(store, id).unique_key is None
        assert _holder(store, now=at(60) + TICK) is None
        finish_all(store, [claim], now=at(61))

    def test_a_past_window_frees_no_key_of_a_live_job(self, store: Store) -> None:
        id = put_one(store, unique=FOR_A_MINUTE)
        assert _holder(store, now=at(1000)) == id
        claim = claim_one(store, id, now=at(1000))
        assert _holder(store, now=at(2000)) == id
        finish_all(store, [claim], now=at(2001))
        assert _holder(store, now=at(2002)) is None

    def test_a_window_counts_from_the_enqueue(self, store: Store) -> None:
        id = put_one(store, unique=FOR_A_MINUTE, run_at=at(-7200))
        finish_all(store, [claim_one(store, id)])
        assert _holder(store, now=at(30)) == id
        assert _holder(store, now=at(61)) is None

    def test_a_window_holds_the_key_after_a_cancellation(self, store: Store) -> None:
        id = put_one(store, unique=CLAIM_OR_A_MINUTE)
        store.move([Move(id, "default", frozenset({S.PENDING}), S.CANCELLED)], now=at(1))
        assert _holder(store, now=at(59)) == id
        assert _holder(store, now=at(60) + TICK) is None

    @pytest.mark.parametrize("hold", [UNTIL_END, UNTIL_CLAIM, FOR_A_MINUTE, CLAIM_OR_A_MINUTE])
    def test_a_move_with_lets_go_frees_the_key_within_its_window(
        self, store: Store, hold: UniqueHold
    ) -> None:
        id = put_one(store, unique=hold)
        beside = put_one(store, unique=UniqueHold("another", window=60 * SECOND))
        gone = Move(id, "default", frozenset({S.PENDING}), S.CANCELLED, lets_go=True)
        store.move([gone, Move(beside, "default", frozenset({S.PENDING}), S.CANCELLED)], now=at(1))
        assert _holder(store, now=at(2)) is None
        assert _holder(store, UniqueHold("another"), now=at(2)) == beside

    def test_a_refused_move_with_lets_go_frees_nothing(self, store: Store) -> None:
        id = put_one(store, unique=FOR_A_MINUTE)
        claim_one(store, id)
        assert not store.move(
            [Move(id, "default", frozenset({S.PENDING}), S.CANCELLED, lets_go=True)], now=at(1)
        )
        assert _holder(store, now=at(2)) == id

    def test_a_window_continues_after_a_failed_job(self, store: Store) -> None:
        id = put_one(store, unique=CLAIM_OR_A_MINUTE)
        finish_all(store, [claim_one(store, id)], FAILED, now=at(1))
        assert _holder(store, now=at(59)) == id
        assert _holder(store, now=at(60) + TICK) is None

    def test_a_job_can_be_reopened_within_its_own_window(self, store: Store) -> None:
        job = bring(store, S.FAILED, unique=FOR_A_MINUTE)
        assert store.move([retry(job)], now=at(1)) == {job.id}
        assert _holder(store, now=at(1000)) == job.id

    def test_a_job_cannot_be_reopened_within_another_window(self, store: Store) -> None:
        job = bring(store, S.FAILED, unique=UNTIL_END)
        other = bring(store, S.COMPLETED, unique=FOR_A_MINUTE)
        assert store.move([retry(job)], now=at(59)) == frozenset()
        assert _holder(store, now=at(59)) == other.id
        assert store.move([retry(job)], now=at(60) + TICK) == {job.id}

    def test_a_cancelled_job_releases_its_key(self, store: Store) -> None:
        id = put_one(store, unique=UNTIL_END)
        store.move([Move(id, "default", frozenset({S.PENDING}), S.CANCELLED)], now=T0)
        assert _holder(store) is None

    def test_a_deleted_job_holds_no_key(self, store: Store) -> None:
        id = put_one(store, unique=UniqueHold("key", window=timedelta(days=1)))
        finish_all(store, [claim_one(store, id)])
        assert _holder(store) == id
        store.delete([id], tenant="default")
        assert _holder(store) is None

    @pytest.mark.parametrize("state", sorted(ENDED - {S.COMPLETED}))
    def test_a_reopened_job_takes_its_key_again(self, store: Store, state: JobState) -> None:
        job = bring(store, state, unique=UNTIL_END)
        assert store.move([retry(job)], now=at(1)) == {job.id}
        assert _holder(store) == job.id
        assert get_one(store, job.id).unique_key == "key"
        finish_all(store, [claim_one(store, job.id)], FAILED)
        assert _holder(store) is None

    @pytest.mark.parametrize("state", sorted(ENDED - {S.COMPLETED}))
    @pytest.mark.parametrize("other", sorted(LIVE))
    def test_a_job_is_not_reopened_while_another_holds_its_key(
        self, store: Store, state: JobState, other: JobState
    ) -> None:
        job = bring(store, state, unique=UNTIL_END)
        holder = bring(store, other, unique=UNTIL_END)
        before = snapshot(store, job.id)
        assert store.move([retry(job)], now=at(1)) == frozenset()
        assert snapshot(store, job.id) == before
        assert _holder(store) == holder.id

    def test_a_refused_move_takes_no_key(self, store: Store) -> None:
        job = bring(store, S.FAILED, unique=UNTIL_END)
        for move in (
            Move(job.id, "other", frozenset({S.FAILED}), S.PENDING),
            Move(job.id, "default", frozenset({S.CANCELLED, S.TIMED_OUT}), S.PENDING),
        ):
            assert store.move([move], now=at(1)) == frozenset()
            assert _holder(store, now=at(1)) is None
            assert _holder(store, tenant="other", now=at(1)) is None

    def test_one_of_several_jobs_with_one_key_is_reopened(self, store: Store) -> None:
        jobs = [bring(store, S.FAILED, unique=UNTIL_END) for _ in range(3)]
        moved = store.move([retry(job) for job in jobs], now=at(1))
        assert len(moved) == 1
        (id,) = moved
        assert _holder(store) == id
        assert store.count(JobFilter(ALL_TENANTS)) == {S.FAILED: 2, S.PENDING: 1}

    def test_a_job_that_released_its_key_is_reopened_without_it(self, store: Store) -> None:
        job = bring(store, S.FAILED, unique=UNTIL_CLAIM)
        holder = put_one(store, unique=UNTIL_END)
        assert store.move([retry(job)], now=at(1)) == {job.id}
        assert get_one(store, job.id).unique_key is None
        assert _holder(store) == holder

    def test_a_job_cancelled_unclaimed_takes_its_key_when_reopened(self, store: Store) -> None:
        id = put_one(store, unique=UNTIL_CLAIM)
        store.move([Move(id, "default", frozenset({S.PENDING}), S.CANCELLED)], now=T0)
        assert store.move([retry(get_one(store, id))], now=T0) == {id}
        assert _holder(store) == id
        claim_one(store, id)
        assert _holder(store) is None

    def test_moving_a_live_job_keeps_its_key(self, store: Store) -> None:
        id = put_one(store, unique=UNTIL_END)
        finish_all(store, [claim_one(store, id)], LATER)
        assert store.move([Move(id, "default", frozenset({S.SCHEDULED}), S.PENDING)], now=at(1)) == {id}
        assert _holder(store) == id

    def test_one_of_many_concurrent_enqueues_of_a_key_wins(self, store: Store) -> None:
        def enqueue() -> list[Enqueued]:
            batches = [[a_job(unique=UniqueHold(f"key-{n}")), a_job()] for n in range(20)]
            return [patiently(store.enqueue, batch, now=T0)[0] for batch in batches]

        answers = together([enqueue] * 8)
        for number in range(20):
            of_key = [of_thread[number] for of_thread in answers]
            assert sum(answer.created for answer in of_key) == 1
            assert len({answer.id for answer in of_key}) == 1
        assert store.count(JobFilter(ALL_TENANTS)) == {S.PENDING: 20 + 8 * 20}

    def test_one_of_many_concurrent_reopenings_of_a_key_wins(self, store: Store) -> None:
        jobs = [bring(store, S.FAILED, unique=UNTIL_END) for _ in range(4)]
        moved = together([partial(patiently, store.move, [retry(job)], now=at(1)) for job in jobs])
        assert sorted(map(len, moved)) == [0, 0, 0, 1]

    def test_a_long_or_odd_key_is_stored_exactly(self, store: Store) -> None:
        keys = ["k" * 200, "task:%s", "';--", "\\", "ключ 🗝", ":now"]
        ids = put(store, *[a_job(unique=UniqueHold(key)) for key in keys])
        assert [get_one(store, id).unique_key for id in ids] == keys
        assert [_holder(store, UniqueHold(key)) for key in keys] == ids
