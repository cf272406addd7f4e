"""Laws of the fence: only the worker that holds a job writes it, with its token."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Finish, Progress, ProgressReport, Transition
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.states import HELD, ExecutionState, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    CRASHED,
    FAILED,
    LATER,
    OTHER,
    REVIEW,
    SUSPENDED,
    T0,
    UNHELD,
    WORKER,
    a_job,
    a_line,
    asks,
    at,
    bring,
    claim_all,
    claim_one,
    finish_all,
    get_one,
    held,
    put,
    put_one,
    snapshot,
)

S = JobState
Fenced = Callable[[Store, Claim], frozenset[UUID]]


def _start(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.start([claim], now=at(9))


def _report(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.report(
        [ProgressReport(claim.id, claim.token, claim.worker, Progress(0.5, message="stale"))], now=at(9)
    )


def _log(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.log([a_line(claim, "stale")])


def _complete(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.finish([Finish(claim, COMPLETED, '"stale"')], now=at(9))


def _retry(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.finish([Finish(claim, AGAIN)], now=at(9))


def _postpone(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.finish([Finish(claim, LATER)], now=at(9))


def _suspend(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.finish([Finish(claim, SUSPENDED)], now=at(9))


def _review(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.finish([Finish(claim, REVIEW)], now=at(9))


_STALE_FAILURE = Transition(JobState.FAILED, ExecutionState.FAILED, "stale")


def _elsewhere(claim: Claim) -> ClaimRequest:
    return ClaimRequest(claim.worker or WORKER, [Lane("an empty queue", "default", 0)], 1)


def _step(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.step([Finish(claim, COMPLETED, '"stale"')], _elsewhere(claim), now=at(9)).lost


def _step_failed(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.step([Finish(claim, _STALE_FAILURE)], _elsewhere(claim), now=at(9)).lost


def _step_retry(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.step([Finish(claim, AGAIN)], _elsewhere(claim), now=at(9)).lost


def _step_for_another(store: Store, claim: Claim) -> frozenset[UUID]:
    request = _elsewhere(claim)._replace(worker=THIRD)
    return store.step([Finish(claim, COMPLETED, '"stale"')], request, now=at(9)).lost


def _step_without_claim(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.step([Finish(claim, COMPLETED, '"stale"')], asks(store, WORKER, [], 0), now=at(9)).lost


def _redate(store: Store, claim: Claim) -> frozenset[UUID]:
    return store.redate([claim], {}, now=at(9)).lost


FENCED: dict[str, Fenced] = {
    "start": _start,
    "report": _report,
    "log": _log,
    "complete": _complete,
    "retry": _retry,
    "postpone": _postpone,
    "suspend": _suspend,
    "review": _review,
    "step": _step,
    "step of a failure": _step_failed,
    "step of a retry": _step_retry,
    "step that claims for another worker": _step_for_another,
    "step without a claim": _step_without_claim,
    "redate": _redate,
}
"""Every way to write a held job, by name."""

THIRD = UUID("0197a000-0000-7000-8000-00000000000c")

every_fenced_verb = pytest.mark.parametrize("verb", FENCED.values(), ids=FENCED)


class FenceLaws:
    """A worker that has lost the job writes nothing, and the answer reports it."""

    @every_fenced_verb
    def test_the_holder_may_write(self, store: Store, verb: Fenced) -> None:
        assert verb(store, claim_one(store, put_one(store))) == frozenset()

    @every_fenced_verb
    @pytest.mark.parametrize("start", [True, False])
    def test_a_stale_token_writes_nothing_after_a_reclaim(
        self, store: Store, verb: Fenced, start: bool
    ) -> None:
        stale = claim_one(store, put_one(store), start=start)
        finish_all(store, [stale], CRASHED, now=at(1))
        # The same worker claims again, so only the token distinguishes the two claims.
        fresh = claim_one(store, stale.id, now=at(2), start=start)
        assert fresh.token == stale.token + 1
        before = snapshot(store, stale.id)
        assert verb(store, stale) == {stale.id}
        assert snapshot(store, stale.id) == before
        assert verb(store, fresh) == frozenset()

    @every_fenced_verb
    def test_a_stale_token_writes_nothing_while_the_job_is_not_held(self, store: Store, verb: Fenced) -> None:
        stale = claim_one(store, put_one(store))
        finish_all(store, [stale], CRASHED)
        before = snapshot(store, stale.id)
        assert verb(store, stale) == {stale.id}
        assert snapshot(store, stale.id) == before

    @every_fenced_verb
    @pytest.mark.parametrize("off", [-1, 1, 1000])
    def test_a_wrong_token_writes_nothing(self, store: Store, verb: Fenced, off: int) -> None:
        claim = claim_one(store, put_one(store))
        before = snapshot(store, claim.id)
        assert verb(store, claim._replace(token=claim.token + off)) == {claim.id}
        assert snapshot(store, claim.id) == before

    @every_fenced_verb
    @pytest.mark.parametrize("start", [True, False])
    def test_another_worker_with_the_right_token_writes_nothing(
        self, store: Store, verb: Fenced, start: bool
    ) -> None:
        claim = claim_one(store, put_one(store), start=start)
        before = snapshot(store, claim.id)
        assert verb(store, claim._replace(worker=OTHER)) == {claim.id}
        assert verb(store, claim._replace(worker=None)) == {claim.id}
        assert snapshot(store, claim.id) == before
        assert verb(store, claim) == frozenset()

    @every_fenced_verb
    def test_an_orphan_is_written_with_its_former_worker(self, store: Store, verb: Fenced) -> None:
        claim_one(store, put_one(store))
        store.retire([WORKER], now=at(1))
        (orphan,) = store.orphans(10)
        assert orphan.worker == WORKER
        assert verb(store, orphan) == frozenset()

    @every_fenced_verb
    @pytest.mark.parametrize("state", UNHELD)
    def test_the_right_token_writes_nothing_while_the_job_is_not_held(
        self, store: Store, verb: Fenced, state: JobState
    ) -> None:
        job = bring(store, state)
        before = snapshot(store, job.id)
        assert verb(store, held(job)) == {job.id}
        assert snapshot(store, job.id) == before

    @every_fenced_verb
    def test_an_unknown_job_is_lost(self, store: Store, verb: Fenced) -> None:
        gone = claim_one(store, put_one(store))._replace(id=new_id())
        assert verb(store, gone) == {gone.id}
        assert store.get([gone.id], tenant=ALL_TENANTS) == []

    @every_fenced_verb
    def test_a_deleted_job_is_lost(self, store: Store, verb: Fenced) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim])
        store.delete([claim.id], tenant="default")
        assert verb(store, claim) == {claim.id}
        assert snapshot(store, claim.id) == ([], [], [])

    @every_fenced_verb
    @pytest.mark.parametrize("state", sorted(HELD))
    def test_a_claim_read_from_the_store_is_valid(self, store: Store, verb: Fenced, state: JobState) -> None:
        job = bring(store, state)
        assert verb(store, held(job)) == frozenset()

    def test_the_same_claim_finishes_once(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        assert _complete(store, claim) == frozenset()
        before = snapshot(store, claim.id)
        assert _complete(store, claim) == {claim.id}
        assert _retry(store, claim) == {claim.id}
        assert snapshot(store, claim.id) == before

    def test_an_expired_worker_may_finish_a_job_not_yet_reclaimed(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        assert store.finish([Finish(claim, COMPLETED)], now=at(10**6)) == frozenset()
        assert get_one(store, claim.id).state is S.COMPLETED

    def test_each_finish_of_a_batch_is_checked_against_its_worker(self, store: Store) -> None:
        put(store, a_job(), a_job(), a_job())
        good, bad, other = claim_all(store)
        stale = bad._replace(worker=OTHER)
        ends = [Finish(claim, COMPLETED, "1") for claim in (good, stale)]
        assert store.step(ends, _elsewhere(good), now=at(1)).lost == {bad.id}
        assert get_one(store, good.id).state is S.COMPLETED
        assert get_one(store, bad.id).state is S.RUNNING
        ends = [Finish(claim, FAILED) for claim in (stale, other)]
        assert store.finish(ends, now=at(2)) == {bad.id}
        assert get_one(store, other.id).state is S.FAILED
        assert get_one(store, bad.id).state is S.RUNNING

    def test_reports_and_logs_of_a_batch_are_checked_one_by_one(self, store: Store) -> None:
        put(store, a_job(), a_job())
        good, bad = claim_all(store)
        stale = bad._replace(token=9)
        reports = [
            ProgressReport(claim.id, claim.token, claim.worker, Progress(0.5)) for claim in (good, stale)
        ]
        assert store.report(reports, now=T0) == {bad.id}
        assert store.log([a_line(good, "one"), a_line(stale, "two"), a_line(good, "three")]) == {bad.id}
        assert get_one(store, good.id).progress is not None
        assert get_one(store, bad.id).progress is None
        assert [entry.message for _, entry in store.logs(good.id, tenant="default")] == ["one", "three"]
        assert store.logs(bad.id, tenant="default") == []
