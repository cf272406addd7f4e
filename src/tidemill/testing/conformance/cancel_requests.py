"""Laws of a held job with a cancel request that its worker has not received."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Finish, Transition, UniqueHold
from tidemill.domain.states import ExecutionState, JobState
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    ASLEEP,
    BOOM,
    CRASHED,
    ENDS,
    HOUR,
    LATER,
    RELEASED,
    REVIEW,
    SUSPENDED,
    T0,
    WORKER,
    a_job,
    at,
    claim_all,
    claim_one,
    executions_of,
    finish_all,
    get_one,
    ids_of,
    put,
    put_one,
    retry,
    wants,
)
from tidemill.testing.conformance.limited_claims import at_once, by_name, claim_within, used

S, E = JobState, ExecutionState
WAYS_BACK = [AGAIN, LATER, RELEASED, CRASHED, SUSPENDED, ASLEEP]
every_way_back = pytest.mark.parametrize(
    "way", WAYS_BACK, ids=[f"{way.state}-{way.execution}-{way.delay.seconds}" for way in WAYS_BACK]
)


class _FailsOnCancel(Transition):
    """A transition with another outcome for a cancel request than the domain's own."""

    __slots__ = ()

    @property
    def on_cancel(self) -> JobState:
        return S.FAILED


def _ask(store: Store, *claims: Claim) -> None:
    """Request the cancellation of these jobs; their worker is not notified."""
    ids = ids_of(claims)
    assert store.request_cancel(ids, tenant=ALL_TENANTS, reason="enough") == frozenset(ids)


class AskedLaws:
    """A cancel request is never lost: a job that would go back ends as cancelled."""

    @every_way_back
    @pytest.mark.parametrize("start", [True, False])
    def test_a_job_with_a_cancel_request_ends_as_cancelled(
        self, store: Store, way: Transition, start: bool
    ) -> None:
        claim = claim_one(store, put_one(store), start=start)
        _ask(store, claim)
        finish_all(store, [claim], way, now=at(5), error=BOOM)
        job = get_one(store, claim.id)
        assert (job.state, job.reason, job.cancel_reason) == (S.CANCELLED, "enough", "enough")
        assert (job.error, job.finished_at, job.worker) == (BOOM, at(5), WORKER)
        assert (job.run_at, job.attempt, job.token, job.crashes) == (T0, 1, 1, 1 if way.crashed else 0)

    @every_way_back
    def test_a_job_with_a_cancel_request_is_in_history_only(self, store: Store, way: Transition) -> None:
        claim = claim_one(store, put_one(store, expires_at=at(60)))
        _ask(store, claim)
        finish_all(store, [claim], way)
        assert store.lanes() == []
        assert store.promote(10, now=at(10**6)).moved == 0
        assert store.expired(10, now=at(10**6)) == []
        assert store.orphans(10) == store.held(WORKER) == []
        assert store.finish([Finish(claim, way)], now=at(1)) == {claim.id}

    @every_way_back
    def test_the_execution_keeps_its_outcome_despite_a_cancel_request(
        self, store: Store, way: Transition
    ) -> None:
        claim = claim_one(store, put_one(store), now=at(1))
        _ask(store, claim)
        finish_all(store, [claim], way, now=at(10), error=BOOM, started_ago=2.5, ended_ago=0.5)
        (execution,) = executions_of(store, claim.id)
        assert (execution.number, execution.attempt, execution.state) == (1, 1, way.execution)
        assert (execution.error, execution.reason) == (BOOM, "enough")
        assert (execution.started_at, execution.finished_at) == (at(7.5), at(9.5))

    @pytest.mark.parametrize("state", sorted(ENDS))
    def test_a_cancel_request_does_not_change_an_end(self, store: Store, state: JobState) -> None:
        claim = claim_one(store, put_one(store))
        _ask(store, claim)
        finish_all(store, [claim], ENDS[state], result='"r"')
        job = get_one(store, claim.id)
        assert (job.state, job.reason, job.result) == (state, ENDS[state].reason, '"r"')

    def test_a_cancel_request_does_not_change_a_review(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        _ask(store, claim)
        finish_all(store, [claim], REVIEW, result='"draft"')
        job = get_one(store, claim.id)
        assert (job.state, job.reason, job.result) == (S.REVIEW_NEEDED, "please look", '"draft"')

    def test_a_batch_cancels_only_jobs_with_a_cancel_request(self, store: Store) -> None:
        put(store, *[a_job() for _ in range(6)])
        claims = claim_all(store)
        _ask(store, *claims[::2])
        batch = [Finish(claim, way) for claim, way in zip(claims, [AGAIN, LATER, SUSPENDED] * 2, strict=True)]
        assert store.finish(batch, now=T0) == frozenset()
        assert [get_one(store, claim.id).state for claim in claims] == [
            *(S.CANCELLED, S.SCHEDULED, S.CANCELLED, S.PENDING, S.CANCELLED, S.WAITING)
        ]

    @pytest.mark.parametrize("way", [AGAIN, REVIEW], ids=["retry", "review"])
    def test_the_outcome_of_a_cancel_request_is_the_one_of_the_transition(
        self, store: Store, way: Transition
    ) -> None:
        put(store, a_job(), a_job())
        asked, other = claim_all(store)
        _ask(store, asked)
        odd = _FailsOnCancel(way.state, way.execution, way.reason, way.delay)
        assert store.finish([Finish(asked, odd), Finish(other, odd)], now=T0) == frozenset()
        assert [get_one(store, claim.id).state for claim in (asked, other)] == [S.FAILED, way.state]
        assert get_one(store, asked.id).reason == "enough"

    def test_a_stale_token_cancels_nothing(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        _ask(store, claim)
        assert store.finish([Finish(claim._replace(token=2), AGAIN)], now=at(1)) == {claim.id}
        assert get_one(store, claim.id).state is S.RUNNING

    @every_way_back
    def test_a_job_cancelled_at_its_finish_releases_its_key(self, store: Store, way: Transition) -> None:
        claim = claim_one(store, put_one(store, unique=UniqueHold("key")))
        _ask(store, claim)
        finish_all(store, [claim], way)
        put_one(store, unique=UniqueHold("key"))

    def test_a_key_with_a_window_is_held_until_the_window_ends(self, store: Store) -> None:
        hold = UniqueHold("key", window=HOUR)
        claim = claim_one(store, put_one(store, unique=hold))
        _ask(store, claim)
        finish_all(store, [claim], AGAIN, now=at(1))
        assert [answer.id for answer in store.enqueue([a_job(unique=hold)], now=at(2))] == [claim.id]
        put_one(store, unique=hold, now=T0 + HOUR)

    @every_way_back
    def test_a_job_cancelled_at_its_finish_releases_its_limits(self, store: Store, way: Transition) -> None:
        one = at_once("one", 1)
        first, second = put(store, a_job(limits=("one",)), a_job(limits=("one",)))
        (claim,) = claim_within(store, one)
        _ask(store, claim)
        finish_all(store, [claim], way)
        assert (claim.id, used(store, "one")) == (first, [0])
        assert ids_of(claim_within(store, one)) == [second]

    @every_way_back
    @pytest.mark.parametrize("limits", [(), ("one",)])
    def test_a_step_applies_cancel_requests_and_claims_the_next(
        self, store: Store, way: Transition, limits: tuple[str, ...]
    ) -> None:
        rules = by_name(at_once("one", 1))
        first, second = put(store, a_job(limits=limits), a_job(limits=limits))
        (claim,) = store.claim(wants(store, limit=1)._replace(rules=rules), now=T0)
        _ask(store, claim)
        step = store.step([Finish(claim, way)], wants(store)._replace(rules=rules), now=at(1))
        assert (claim.id, step.lost, ids_of(step.claims)) == (first, frozenset(), [second])
        assert get_one(store, first).state is S.CANCELLED

    def test_a_step_with_a_handoff_applies_cancel_requests(self, store: Store) -> None:
        rules = by_name(at_once("one", 1))
        first, second = put(store, a_job(limits=("one",)), a_job(limits=("one",)))
        (claim,) = store.claim(wants(store, limit=1)._replace(rules=rules), now=T0)
        _ask(store, claim)
        request = wants(store)._replace(rules=rules, handoff=True)
        assert ids_of(store.step([Finish(claim, LATER)], request, now=at(1)).claims) == [second]
        assert (get_one(store, first).state, used(store, "one")) == (S.CANCELLED, [1])

    def test_a_reopened_job_has_no_cancel_request(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        _ask(store, claim)
        finish_all(store, [claim], replace(AGAIN, refund=True))
        assert store.move([retry(get_one(store, claim.id))], now=at(1)) == {claim.id}
        again = claim_one(store, claim.id)
        assert (get_one(store, claim.id).cancel_reason, again.token) == (None, 2)
        finish_all(store, [again], AGAIN)
        assert get_one(store, claim.id).state is S.PENDING
        assert [execution.state for execution in executions_of(store, claim.id)] == [E.FAILED, E.FAILED]
