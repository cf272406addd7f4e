"""Laws of the rows that a finish keeps."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Checkpoint, Details, Finish, Transition, UniqueHold
from tidemill.domain.large_values import BlobKey
from tidemill.domain.record import Keep
from tidemill.domain.states import ExecutionState, JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    BOOM,
    FAILED,
    HOUR,
    T0,
    a_job,
    a_line,
    at,
    claim_all,
    claim_one,
    executions_of,
    get_one,
    ids_of,
    put,
    put_one,
    retry,
    wants,
)


class KeepLaws:
    """A finish keeps everything, the last execution, or nothing."""

    def test_a_finish_that_keeps_nothing_leaves_no_record_of_the_job(self, store: Store) -> None:
        details = Details(correlation_id="c", tags=("t",))
        claim = claim_one(store, put_one(store, details=details))
        store.log([a_line(claim, "hello")])
        store.save_checkpoints([Checkpoint(claim.id, claim.token, claim.worker, "n", "1")], now=T0)
        store.put_blob(BlobKey(claim.id, 0), ["[1]"], now=T0)
        assert store.finish([Finish(claim, AGAIN, error=BOOM)], now=at(1)) == frozenset()
        claim = claim_one(store, claim.id, now=at(2))
        assert store.finish([Finish(claim, COMPLETED, "1", keep=Keep.NOTHING)], now=at(3)) == frozenset()
        assert store.get([claim.id], tenant=ALL_TENANTS) == []
        assert executions_of(store, claim.id) == []
        assert store.logs(claim.id, tenant=ALL_TENANTS) == []
        assert store.checkpoints(claim.id, tenant=ALL_TENANTS) == {}
        assert store.blob_parts(BlobKey(claim.id, 0)) == []
        # The details are gone as well: a job that reuses the id does not inherit them.
        put(store, a_job(id=claim.id))
        assert get_one(store, claim.id).details == Details()

    def test_a_job_that_kept_nothing_is_lost_to_a_second_finish(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish = Finish(claim, COMPLETED, keep=Keep.NOTHING)
        assert store.finish([finish], now=T0) == frozenset()
        assert store.finish([finish], now=T0) == {claim.id}

    @pytest.mark.parametrize("step", [True, False])
    def test_jobs_of_one_batch_keep_different_rows(self, store: Store, step: bool) -> None:
        put(store, *[a_job() for _ in range(6)])
        claims = claim_all(store)
        keeps = [Keep.ALL, Keep.NOTHING, Keep.LAST] * 2
        batch = [Finish(claim, COMPLETED, "1", keep=keep) for claim, keep in zip(claims, keeps, strict=True)]
        if step:
            assert store.step(batch, wants(store), now=at(1)).lost == frozenset()
        else:
            assert store.finish(batch, now=at(1)) == frozenset()
        rows = store.get([claim.id for claim in claims], tenant=ALL_TENANTS)
        assert set(ids_of(rows)) == {
            claim.id for claim, keep in zip(claims, keeps, strict=True) if keep is not Keep.NOTHING
        }
        assert {job.state for job in rows} == {JobState.COMPLETED}

    def test_a_step_claims_the_next_jobs_whatever_the_finished_ones_keep(self, store: Store) -> None:
        first = claim_one(store, put_one(store))
        second = put_one(store)
        answer = store.step([Finish(first, COMPLETED, keep=Keep.NOTHING)], wants(store), now=at(1))
        assert answer.lost == frozenset()
        assert ids_of(answer.claims) == [second]
        mixed = [Finish(answer.claims[0], FAILED, keep=Keep.LAST)]
        third = put_one(store)
        answer = store.step(mixed, wants(store), now=at(2))
        assert ids_of(answer.claims) == [third]
        assert get_one(store, second).state is JobState.FAILED

    def test_a_failed_job_beside_one_that_keeps_nothing_is_kept(self, store: Store) -> None:
        put(store, a_job(), a_job())
        one, two = claim_all(store)
        batch = [Finish(one, COMPLETED, keep=Keep.NOTHING), Finish(two, FAILED, error=BOOM)]
        assert store.step(batch, wants(store), now=at(1)).lost == frozenset()
        assert store.get([one.id], tenant=ALL_TENANTS) == []
        assert get_one(store, two.id).error == BOOM

    def test_keeping_the_last_execution_deletes_the_rows_of_the_earlier_ones(self, store: Store) -> None:
        id = put_one(store)
        for number in (1, 2):
            claim = claim_one(store, id, now=at(number))
            store.finish([Finish(claim, AGAIN, error=BOOM, keep=Keep.LAST)], now=at(number))
            assert [execution.number for execution in executions_of(store, id)] == [number]
        claim = claim_one(store, id, now=at(3))
        store.finish([Finish(claim, COMPLETED, "1", keep=Keep.LAST)], now=at(4))
        (last,) = executions_of(store, id)
        assert (last.number, last.state) == (3, ExecutionState.SUCCEEDED)
        assert get_one(store, id).state is JobState.COMPLETED

    def test_a_reopened_job_keeps_only_its_last_execution(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.finish([Finish(claim, FAILED, error=BOOM)], now=at(1))
        assert store.move([retry(get_one(store, claim.id))], now=at(2)) == {claim.id}
        again = claim_one(store, claim.id, now=at(3))
        store.finish([Finish(again, COMPLETED, keep=Keep.LAST)], now=at(4))
        assert [execution.number for execution in executions_of(store, claim.id)] == [2]

    def test_a_late_cancel_request_does_not_keep_a_completed_job(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.request_cancel([claim.id], tenant=ALL_TENANTS, reason="stop")
        store.finish([Finish(claim, COMPLETED, keep=Keep.NOTHING)], now=T0)
        assert store.get([claim.id], tenant=ALL_TENANTS) == []

    def test_a_job_that_keeps_nothing_releases_its_limits(self, store: Store) -> None:
        claim = claim_one(store, put_one(store, limits=("one",)))
        assert store.finish([Finish(claim, COMPLETED, keep=Keep.NOTHING)], now=T0) == frozenset()
        assert [use.used for use in store.uses({}, ["one"], now=T0)] == [0]

    def test_a_job_that_keeps_nothing_enqueues_its_follow_up_jobs(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        next_job = a_job("next")
        store.finish([Finish(claim, COMPLETED, then=(next_job,), keep=Keep.NOTHING)], now=T0)
        assert store.get([claim.id], tenant=ALL_TENANTS) == []
        assert get_one(store, next_job.id).state is JobState.PENDING

    def test_a_unique_key_is_free_again_after_a_job_that_keeps_nothing(self, store: Store) -> None:
        job = a_job(unique=UniqueHold("k"))
        claim = claim_one(store, put(store, job)[0])
        store.finish([Finish(claim, COMPLETED, keep=Keep.NOTHING)], now=at(1))
        put(store, a_job(unique=UniqueHold("k")), now=at(2))

    def test_the_window_of_a_unique_key_outlives_a_job_that_keeps_nothing(self, store: Store) -> None:
        job = a_job(unique=UniqueHold("k", window=HOUR))
        claim = claim_one(store, put(store, job)[0])
        store.finish([Finish(claim, COMPLETED, keep=Keep.NOTHING)], now=at(1))
        (answer,) = store.enqueue([a_job(unique=UniqueHold("k", window=HOUR))], now=at(2))
        assert answer == (job.id, False)
        put(store, a_job(unique=UniqueHold("k", window=HOUR)), now=at(3601))

    def test_a_lost_finish_that_keeps_nothing_deletes_nothing(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        stale = claim._replace(token=claim.token + 1)
        assert store.finish([Finish(stale, COMPLETED, keep=Keep.NOTHING)], now=T0) == {claim.id}
        assert get_one(store, claim.id).state is JobState.RUNNING

    def test_a_rollback_restores_a_job_that_kept_nothing(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        with suppress(ZeroDivisionError), store.transaction():
            store.finish([Finish(claim, COMPLETED, keep=Keep.NOTHING)], now=T0)
            raise ZeroDivisionError
        assert get_one(store, claim.id).state is JobState.RUNNING

    def test_a_note_about_the_result_is_the_reason_of_a_completed_job(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        noted = replace(COMPLETED, reason="its result was not kept")
        assert isinstance(noted, Transition)
        store.step([Finish(claim, noted, "blob:{}")], wants(store), now=T0)
        assert get_one(store, claim.id).reason == "its result was not kept"
