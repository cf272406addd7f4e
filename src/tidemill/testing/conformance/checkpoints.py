"""Laws of checkpoints: only the holder writes, and they live as long as their job."""

from __future__ import annotations

import pytest

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Checkpoint, Claim
from tidemill.domain.retention import ArchivePolicy
from tidemill.domain.states import JobState
from tidemill.errors import StoreUnavailable
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    CRASHED,
    HOUR,
    OTHER,
    SECOND,
    T0,
    UNHELD,
    a_job,
    at,
    bring,
    claim_all,
    claim_one,
    due,
    finish_all,
    get_one,
    held,
    put,
    put_one,
    retry,
)
from tidemill.testing.conformance.kit import FAILED as FAIL


def _mark(claim: Claim, value: str, name: str = "at") -> Checkpoint:
    return Checkpoint(claim.id, claim.token, claim.worker, name, value)


class CheckpointLaws:
    """Data that a job saves for its next attempt."""

    def test_a_checkpoint_is_read_as_it_was_saved(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        odd = '{"é":"“🦊”\\u0000"}\n\t\'; -- %s :id'
        marks = [_mark(claim, "12"), _mark(claim, odd, "ödd ':name"), _mark(claim, "", "empty")]
        assert store.save_checkpoints(marks, now=T0) == frozenset()
        saved = store.checkpoints(claim.id, tenant="default")
        assert saved == {"at": "12", "ödd ':name": odd, "empty": ""}

    def test_no_checkpoints_are_read_where_none_were_saved(self, store: Store) -> None:
        id = put_one(store)
        assert store.save_checkpoints([]) == frozenset()
        assert store.checkpoints(id, tenant="default") == {}
        assert store.checkpoints(new_id(), tenant=ALL_TENANTS) == {}

    def test_a_checkpoint_replaces_only_the_one_of_the_same_name(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.save_checkpoints([_mark(claim, "1"), _mark(claim, "a", "other")], now=T0)
        store.save_checkpoints([_mark(claim, "2")], now=at(1))
        assert store.checkpoints(claim.id, tenant="default") == {"at": "2", "other": "a"}

    def test_the_last_of_two_checkpoints_of_one_name_wins(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        for values in (["1", "3", "2"], ["9", "8"]):
            assert store.save_checkpoints([_mark(claim, value) for value in values]) == frozenset()
            assert store.checkpoints(claim.id, tenant="default") == {"at": values[-1]}

    def test_checkpoints_of_different_jobs_do_not_mix(self, store: Store) -> None:
        put(store, a_job(), a_job())
        one, two = claim_all(store)
        store.save_checkpoints([_mark(two, "2"), _mark(one, "1")], now=T0)
        assert store.checkpoints(one.id, tenant="default") == {"at": "1"}
        assert store.checkpoints(two.id, tenant="default") == {"at": "2"}

    def test_a_claimed_job_may_save_checkpoints_before_its_start(self, store: Store) -> None:
        claim = claim_one(store, put_one(store), start=False)
        assert store.save_checkpoints([_mark(claim, "1")], now=T0) == frozenset()
        assert store.checkpoints(claim.id, tenant="default") == {"at": "1"}

    @pytest.mark.parametrize("ended", [True, False])
    def test_a_tenant_sees_only_its_own_checkpoints(self, store: Store, ended: bool) -> None:
        claim = claim_one(store, put_one(store, tenant="a"))
        store.save_checkpoints([_mark(claim, "secret")], now=T0)
        if ended:
            finish_all(store, [claim])
        assert store.checkpoints(claim.id, tenant="b") == {}
        assert store.checkpoints(claim.id, tenant="a") == {"at": "secret"}
        assert store.checkpoints(claim.id, tenant=ALL_TENANTS) == {"at": "secret"}

    def test_checkpoints_survive_executions_the_end_and_a_retry(self, store: Store) -> None:
        id = put_one(store)
        for value, transition in (("1", AGAIN), ("2", FAIL)):
            claim = claim_one(store, id)
            store.save_checkpoints([_mark(claim, value), _mark(claim, value, value)], now=T0)
            finish_all(store, [claim], transition)
            assert store.checkpoints(id, tenant="default")["at"] == value
        store.move([retry(get_one(store, id))], now=T0)
        assert store.checkpoints(id, tenant="default") == {"at": "2", "1": "1", "2": "2"}

    def test_a_rolled_back_transaction_saves_no_checkpoint(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.save_checkpoints([_mark(claim, "1")], now=T0)

        def save_and_stop() -> None:
            store.save_checkpoints([_mark(claim, "2"), _mark(claim, "2", "new")], now=T0)
            assert store.checkpoints(claim.id, tenant="default") == {"at": "2", "new": "2"}
            raise KeyError

        with pytest.raises(KeyError), store.transaction():
            save_and_stop()
        assert store.checkpoints(claim.id, tenant="default") == {"at": "1"}

    def test_checkpoints_of_a_closed_store_are_unavailable(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.close()
        with pytest.raises(StoreUnavailable):
            store.save_checkpoints([_mark(claim, "1")], now=T0)
        with pytest.raises(StoreUnavailable):
            store.checkpoints(claim.id, tenant="default")


class CheckpointFenceLaws:
    """Only the holder saves checkpoints, and they are deleted with the job."""

    def test_a_stale_token_saves_no_checkpoint_after_a_reclaim(self, store: Store) -> None:
        stale = claim_one(store, put_one(store))
        store.save_checkpoints([_mark(stale, "1")], now=T0)
        finish_all(store, [stale], CRASHED, now=at(1))
        assert store.save_checkpoints([_mark(stale, "late")], now=at(2)) == {stale.id}
        fresh = claim_one(store, stale.id, worker=OTHER, now=at(2))
        assert store.save_checkpoints([_mark(stale, "late")], now=at(3)) == {stale.id}
        assert store.checkpoints(stale.id, tenant="default") == {"at": "1"}
        assert store.save_checkpoints([_mark(fresh, "2")], now=at(3)) == frozenset()
        assert store.checkpoints(stale.id, tenant="default") == {"at": "2"}

    @pytest.mark.parametrize("off", [-1, 1, 1000])
    def test_a_wrong_token_saves_no_checkpoint(self, store: Store, off: int) -> None:
        claim = claim_one(store, put_one(store))
        wrong = claim._replace(token=claim.token + off)
        assert store.save_checkpoints([_mark(wrong, "1")], now=T0) == {claim.id}
        assert store.checkpoints(claim.id, tenant="default") == {}

    def test_another_worker_with_the_right_token_saves_no_checkpoint(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        for worker in (OTHER, None):
            assert store.save_checkpoints([_mark(claim._replace(worker=worker), "1")], now=T0) == {claim.id}
        assert store.checkpoints(claim.id, tenant="default") == {}

    @pytest.mark.parametrize("state", UNHELD)
    def test_no_checkpoint_is_saved_for_a_job_that_is_not_held(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        assert store.save_checkpoints([_mark(held(job), "1")], now=T0) == {job.id}
        assert store.checkpoints(job.id, tenant="default") == {}

    def test_checkpoints_of_a_batch_are_checked_one_by_one(self, store: Store) -> None:
        put(store, a_job(), a_job())
        good, bad = claim_all(store)
        marks = [_mark(good, "1"), _mark(bad._replace(token=9), "2"), _mark(good, "3", "more")]
        gone = Checkpoint(new_id(), 1, good.worker, "at", "4")
        assert store.save_checkpoints([*marks, gone], now=T0) == {bad.id, gone.job_id}
        assert store.checkpoints(good.id, tenant="default") == {"at": "1", "more": "3"}
        assert store.checkpoints(bad.id, tenant="default") == {}

    def test_checkpoints_are_deleted_with_their_job(self, store: Store) -> None:
        put(store, a_job(), a_job())
        gone, stays = claim_all(store)
        store.save_checkpoints([_mark(gone, "1"), _mark(stays, "2")], now=T0)
        finish_all(store, [gone, stays])
        store.delete([gone.id], tenant="default")
        put(store, a_job(id=gone.id))
        assert store.checkpoints(gone.id, tenant=ALL_TENANTS) == {}
        assert store.checkpoints(stays.id, tenant="default") == {"at": "2"}

    def test_checkpoints_are_deleted_when_their_job_is_forgotten(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.save_checkpoints([_mark(claim, "1")], now=T0)
        finish_all(store, [claim])
        documents = due(store, ArchivePolicy("p", max_age=SECOND), T0 + HOUR)
        assert store.forget(documents) == {claim.id}
        put(store, a_job(id=claim.id))
        assert store.checkpoints(claim.id, tenant=ALL_TENANTS) == {}
