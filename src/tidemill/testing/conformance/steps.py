"""Laws of step records: only the holder writes, and the first value stands."""

from __future__ import annotations

import pytest

from tidemill.domain.graph import StepRecord
from tidemill.domain.job import Claim
from tidemill.domain.states import JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    ASLEEP,
    CRASHED,
    OTHER,
    T0,
    UNHELD,
    a_job,
    at,
    bring,
    claim_all,
    claim_one,
    finish_all,
    get_one,
    held,
    put,
    put_one,
)


def _record(claim: Claim, value: str, name: str = "step/charge") -> StepRecord:
    return StepRecord(claim.id, claim.token, claim.worker, name, value)


class StepRecordLaws:
    """Results of steps, which later executions of the job read."""

    def test_a_record_is_read_as_it_was_written(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        odd = '{"v":"“🦊”\\u0000"}\n\t\'; -- %s :id'
        records = [_record(claim, odd), _record(claim, '{"v":1}', "step/ödd[':id]#2")]
        assert store.record_steps(records, now=T0) == frozenset()
        assert store.record_steps([]) == frozenset()
        saved = store.checkpoints(claim.id, tenant="default")
        assert saved == {"step/charge": odd, "step/ödd[':id]#2": '{"v":1}'}

    def test_the_first_value_of_a_record_stands(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        assert store.record_steps([_record(claim, "1"), _record(claim, "2")], now=T0) == frozenset()
        assert store.record_steps([_record(claim, "3"), _record(claim, "4", "step/b")]) == frozenset()
        assert store.checkpoints(claim.id, tenant="default") == {"step/charge": "1", "step/b": "4"}

    def test_records_of_different_jobs_do_not_mix(self, store: Store) -> None:
        put(store, a_job(), a_job())
        one, two = claim_all(store)
        store.record_steps([_record(two, "2"), _record(one, "1")], now=T0)
        assert store.checkpoints(one.id, tenant="default") == {"step/charge": "1"}
        assert store.checkpoints(two.id, tenant="default") == {"step/charge": "2"}

    def test_a_stale_token_writes_no_record_after_a_reclaim(self, store: Store) -> None:
        stale = claim_one(store, put_one(store))
        finish_all(store, [stale], CRASHED, now=at(1))
        assert store.record_steps([_record(stale, "late")], now=at(2)) == {stale.id}
        fresh = claim_one(store, stale.id, worker=OTHER, now=at(2))
        assert store.record_steps([_record(stale, "late")], now=at(3)) == {stale.id}
        assert store.checkpoints(stale.id, tenant="default") == {}
        assert store.record_steps([_record(fresh, "2")], now=at(3)) == frozenset()
        assert store.checkpoints(stale.id, tenant="default") == {"step/charge": "2"}

    @pytest.mark.parametrize("state", UNHELD)
    def test_no_record_is_written_for_a_job_that_is_not_held(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        assert store.record_steps([_record(held(job), "1")], now=T0) == {job.id}
        assert store.checkpoints(job.id, tenant="default") == {}

    def test_records_of_a_batch_are_checked_one_by_one(self, store: Store) -> None:
        put(store, a_job(), a_job())
        good, bad = claim_all(store)
        other = _record(good._replace(worker=OTHER), "5", "step/other")
        records = [_record(good, "1"), _record(bad._replace(token=9), "2"), _record(good, "3", "step/more")]
        gone = StepRecord(new_id(), 1, good.worker, "step/charge", "4")
        assert store.record_steps([*records, gone], now=T0) == {bad.id, gone.job_id}
        assert store.record_steps([other], now=T0) == {good.id}
        assert store.checkpoints(good.id, tenant="default") == {"step/charge": "1", "step/more": "3"}
        assert store.checkpoints(bad.id, tenant="default") == {}

    def test_attempts_and_crashes_count_from_the_last_new_record(self, store: Store) -> None:
        id = put_one(store, max_attempts=9)
        first = claim_one(store, id)
        store.record_steps([_record(first, "1")], now=T0)
        finish_all(store, [first], AGAIN)
        finish_all(store, [claim_one(store, id)], CRASHED)
        again = claim_one(store, id)
        assert (again.attempt, again.crashes) == (3, 1)
        store.record_steps([_record(again, "2")], now=T0)
        assert get_one(store, id).attempt == 3, "nothing new was recorded"
        store.record_steps([_record(again, "2", "step/next")], now=T0)
        row = get_one(store, id)
        assert (row.attempt, row.crashes, row.token) == (1, 0, 3)
        finish_all(store, [again], CRASHED)
        last = claim_one(store, id)
        assert (last.attempt, last.crashes) == (2, 1)
        store.record_steps([_record(last, "3", "step/last")], now=T0)
        finish_all(store, [last], ASLEEP)
        row = get_one(store, id)
        assert (row.attempt, row.crashes) == (0, 0)

    def test_a_rolled_back_transaction_writes_no_record(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))

        def write_and_stop() -> None:
            store.record_steps([_record(claim, "1")], now=T0)
            raise KeyError

        with pytest.raises(KeyError), store.transaction():
            write_and_stop()
        assert store.checkpoints(claim.id, tenant="default") == {}

    def test_a_suspended_job_counts_attempts_and_crashes_from_zero(self, store: Store) -> None:
        id = put_one(store, max_attempts=9)
        for transition in (AGAIN, CRASHED, ASLEEP):
            finish_all(store, [claim_one(store, id)], transition)
        row = get_one(store, id)
        assert (row.attempt, row.crashes, row.state) == (0, 0, JobState.WAITING)
