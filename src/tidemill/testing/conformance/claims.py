"""Laws of claim, start and report."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS, JobFilter
from tidemill.domain.job import Claim, Details, Finish, Progress, ProgressReport, UniqueHold
from tidemill.domain.lanes import ClaimRequest, Lane
from tidemill.domain.states import ExecutionState, JobState
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    CRASHED,
    HOUR,
    OTHER,
    RELEASED,
    T0,
    WORKER,
    a_job,
    asks,
    at,
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


class ClaimLaws:
    """Two claims never get the same job, and each gets what it requested."""

    def test_a_claim_takes_the_job_for_its_worker(self, store: Store) -> None:
        id = put_one(store, priority=7, queue="q", tenant="t", args='{"a":1}', limits=("x", "y"))
        claim = claim_one(store, id, now=at(5))
        assert claim._replace(seq=None, detailed=False) == (
            *(
                id,
                "work",
                "q",
                "t",
                7,
                1,
                4,
                0,
                1,
                T0,
                T0,
                None,
                HOUR,
                '{"a":1}',
                None,
                ("x", "y"),
                False,
                None,
            ),
            *(S.RUNNING, None, WORKER),
        )
        job = get_one(store, id)
        assert (job.state, job.attempt, job.token, job.worker) == (S.RUNNING, 1, 1, WORKER)
        assert (job.claimed_at, job.started_at, job.finished_at) == (at(5), at(5), None)

    def test_a_claim_without_start_leaves_the_job_claimed(self, store: Store) -> None:
        id = put_one(store)
        assert claim_one(store, id, start=False, now=at(5)).state is S.CLAIMED
        job = get_one(store, id)
        assert (job.state, job.attempt, job.token) == (S.CLAIMED, 1, 1)
        assert (job.claimed_at, job.started_at) == (at(5), None)

    def test_two_claims_never_get_the_same_job(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(10)])
        (lane,) = store.lanes()
        first = store.claim(asks(store, WORKER, [lane], 6), now=T0)
        second = store.claim(asks(store, OTHER, [lane], 6), now=T0)
        assert ids_of(first) + ids_of(second) == ids
        assert store.claim(asks(store, WORKER, [lane], 6), now=T0) == []

    def test_a_lane_is_claimed_in_the_order_jobs_became_pending(self, store: Store) -> None:
        ids = [put_one(store) for _ in range(5)] + put(store, *[a_job() for _ in range(5)])
        assert ids_of(claim_all(store)) == ids

    def test_lanes_are_claimed_in_the_given_order(self, store: Store) -> None:
        a, b, c = put(store, a_job(queue="a"), a_job(queue="b"), a_job(queue="c"))
        order = [Lane(queue, "default", 0) for queue in ("c", "a", "b")]
        assert ids_of(store.claim(asks(store, WORKER, order, 10), now=T0)) == [c, a, b]

    def test_the_limit_applies_across_lanes(self, store: Store) -> None:
        put(store, *[a_job(queue=queue) for queue in "aabb"])
        order = [Lane(queue, "default", 0) for queue in ("a", "b")]
        assert [claim.queue for claim in store.claim(asks(store, WORKER, order, 3), now=T0)] == [
            "a",
            "a",
            "b",
        ]

    def test_a_limit_of_zero_claims_nothing(self, store: Store) -> None:
        put_one(store)
        assert claim_all(store, limit=0) == []

    def test_a_lane_yields_at_most_its_quota(self, store: Store) -> None:
        put(store, *[a_job(queue=queue) for queue in "aaabbb"])
        order = [Lane("a", "default", 0, quota=1), Lane("b", "default", 0, quota=2)]
        assert [claim.queue for claim in store.claim(asks(store, WORKER, order, 10), now=T0)] == [
            "a",
            "b",
            "b",
        ]

    def test_a_lane_that_is_not_requested_is_not_claimed(self, store: Store) -> None:
        put(
            store,
            a_job(tenant="a"),
            a_job(tenant="b"),
            a_job(tenant="a", priority=1),
            a_job(tenant="a", queue="x"),
        )
        (claim,) = store.claim(asks(store, WORKER, [Lane("default", "a", 0)], 10), now=T0)
        assert (claim.tenant, claim.priority, claim.queue) == ("a", 0, "default")
        assert store.count(JobFilter(ALL_TENANTS)) == {S.PENDING: 3, S.RUNNING: 1}

    def test_a_lane_without_jobs_yields_none(self, store: Store) -> None:
        put_one(store)
        assert store.claim(asks(store, WORKER, [Lane("empty", "default", 0)], 10), now=T0) == []
        assert store.claim(asks(store, WORKER, [], 10), now=T0) == []

    @pytest.mark.parametrize("priority", [-100, -1, 0, 1, 100])
    def test_every_priority_is_kept_and_claimed(self, store: Store, priority: int) -> None:
        id = put_one(store, priority=priority)
        assert get_one(store, id).priority == priority
        assert claim_one(store, id).priority == priority

    def test_tasks_that_are_not_requested_stay_pending(self, store: Store) -> None:
        a, b, c, d = put(store, a_job("a"), a_job("b"), a_job("c"), a_job("a"))
        assert ids_of(claim_all(store, tasks=["a", "c"], limit=2)) == [a, c]
        assert ids_of(claim_all(store, tasks=["b"])) == [b]
        assert claim_all(store, tasks=[]) == []
        assert ids_of(claim_all(store)) == [d]

    def test_attempt_and_token_rise_by_one_with_each_claim(self, store: Store) -> None:
        id = put_one(store)
        for number in range(1, 5):
            claim = claim_one(store, id)
            assert (claim.attempt, claim.token) == (number, number)
            finish_all(store, [claim], AGAIN)

    def test_the_claim_of_a_job_with_details_is_marked(self, store: Store) -> None:
        put_one(store, details=Details(correlation_id="c"))
        assert claim_one(store).detailed

    def test_a_claim_shows_earlier_crashes(self, store: Store) -> None:
        id = put_one(store)
        finish_all(store, [claim_one(store)], CRASHED)
        assert claim_one(store, id).crashes == 1

    def test_a_suspect_is_claimed_without_a_start(self, store: Store) -> None:
        suspect = put_one(store)
        finish_all(store, [claim_one(store)], CRASHED)
        other = put_one(store)
        claims = {claim.id: claim for claim in claim_all(store, start=True)}
        assert (claims[suspect].state, claims[other].state) == (S.CLAIMED, S.RUNNING)
        rows = {job.id: job for job in store.get([suspect, other], tenant=ALL_TENANTS)}
        assert (rows[suspect].state, rows[suspect].started_at) == (S.CLAIMED, None)
        assert (rows[other].state, rows[other].started_at is None) == (S.RUNNING, False)
        finish_all(store, [claims[suspect]], CRASHED)
        request = asks(store, WORKER, store.lanes(), 10)
        (again,) = store.step([Finish(claims[other], COMPLETED)], request, now=at(1)).claims
        assert (again.id, again.state, get_one(store, suspect).state) == (suspect, S.CLAIMED, S.CLAIMED)


class StartLaws:
    """A claimed job becomes running, once."""

    def test_start_makes_a_claimed_job_running(self, store: Store) -> None:
        id = put_one(store)
        claim = claim_one(store, start=False)
        assert store.start([claim], now=at(3)) == frozenset()
        job = get_one(store, id)
        assert (job.state, job.claimed_at, job.started_at, job.token) == (S.RUNNING, T0, at(3), 1)

    def test_a_job_that_began_earlier_is_recorded_with_that_start(self, store: Store) -> None:
        put(store, a_job(), a_job())
        first, second = claim_all(store, start=False)
        assert store.start([first, second], [0.25, 2.5], now=at(3)) == frozenset()
        assert get_one(store, first.id).started_at == at(2.75)
        assert get_one(store, second.id).started_at == at(0.5)

    def test_starting_a_running_job_again_changes_nothing(self, store: Store) -> None:
        claim = claim_one(store, put_one(store), start=False)
        store.start([claim], now=at(1))
        before = snapshot(store, claim.id)
        assert store.start([claim], now=at(2)) == frozenset()
        assert snapshot(store, claim.id) == before

    def test_a_running_execution_is_shown_before_and_after_its_start(self, store: Store) -> None:
        claim = claim_one(store, put_one(store), start=False)
        for started in (None, at(1)):
            (execution,) = executions_of(store, claim.id)
            assert (execution.number, execution.attempt, execution.worker) == (1, 1, WORKER)
            assert (execution.state, execution.started_at) == (ExecutionState.RUNNING, started)
            assert (execution.claimed_at, execution.finished_at) == (T0, None)
            store.start([claim], now=at(1))

    def test_a_batch_starts_held_jobs_and_returns_lost_ones(self, store: Store) -> None:
        put(store, a_job(), a_job())
        good, bad = claim_all(store, start=False)
        gone = good._replace(id=new_id())
        assert store.start([good, bad._replace(token=9), gone], now=T0) == {bad.id, gone.id}
        assert get_one(store, good.id).state is S.RUNNING
        assert get_one(store, bad.id).state is S.CLAIMED


class ReportLaws:
    """Progress of held jobs: each report replaces the previous one."""

    def test_progress_is_written_with_the_stores_time(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        progress = Progress(0.25, 5, 20, "a quarter — “so far”", "reading")
        assert (
            store.report([ProgressReport(claim.id, claim.token, claim.worker, progress)], now=at(9))
            == frozenset()
        )
        assert get_one(store, claim.id).progress == replace(progress, at=at(9))

    def test_a_report_replaces_the_one_before(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.report(
            [ProgressReport(claim.id, claim.token, claim.worker, Progress(0.25, 5, 20, "m", "s"))], now=at(1)
        )
        store.report([ProgressReport(claim.id, claim.token, claim.worker, Progress(message="n"))], now=at(2))
        assert get_one(store, claim.id).progress == Progress(message="n", at=at(2))

    def test_a_claimed_job_may_report_progress(self, store: Store) -> None:
        claim = claim_one(store, put_one(store), start=False)
        assert (
            store.report([ProgressReport(claim.id, claim.token, claim.worker, Progress(0.0))], now=T0)
            == frozenset()
        )
        assert get_one(store, claim.id).progress == Progress(0.0, at=T0)

    def test_a_job_that_did_not_report_shows_no_progress(self, store: Store) -> None:
        put(store, a_job(), a_job())
        first, second = claim_all(store)
        store.report([ProgressReport(first.id, first.token, first.worker, Progress(1.0))], now=T0)
        assert get_one(store, second.id).progress is None


class StepClaimLaws:
    """A step claims by the same rules as a claim."""

    def _step(self, store: Store, request: ClaimRequest) -> list[Claim]:
        """Finish a job of its own and claim in one step."""
        put_one(store, queue="of the batch")
        (done,) = claim_all(store, queues=["of the batch"])
        step = store.step([Finish(done, COMPLETED)], request, now=at(1))
        assert step.lost == frozenset()
        assert get_one(store, done.id).state is S.COMPLETED
        return step.claims

    def test_a_step_claims_only_requested_lanes(self, store: Store) -> None:
        id = put_one(store, tenant="a")
        put(store, a_job(tenant="b"), a_job(tenant="a", priority=1), a_job(tenant="a", queue="x"))
        assert ids_of(self._step(store, asks(store, WORKER, [Lane("default", "a", 0)], 10))) == [id]

    def test_a_step_claims_lanes_in_order_within_quota_and_limit(self, store: Store) -> None:
        a1, a2, b1, b2 = put(store, *[a_job(queue=queue) for queue in "aabb"])
        order = [Lane("b", "default", 0, quota=1), Lane("a", "default", 0)]
        assert ids_of(self._step(store, asks(store, WORKER, order, 2))) == [b1, a1]
        assert ids_of(self._step(store, asks(store, WORKER, order, 10))) == [b2, a2]

    def test_a_step_claims_nothing_below_low(self, store: Store) -> None:
        first, second = put(store, a_job(), a_job())
        (lane,) = store.lanes()
        claims = self._step(store, asks(store, WORKER, [lane._replace(low=lane.low + 1)], 10))
        assert ids_of(claims) == [second]
        assert get_one(store, first).state is S.PENDING

    def test_a_step_claims_only_requested_tasks(self, store: Store) -> None:
        lane = Lane("default", "default", 0)
        a, b, c = put(store, a_job("a"), a_job("b"), a_job("c"))
        assert ids_of(self._step(store, asks(store, WORKER, [lane], 10, ["a", "c"]))) == [a, c]
        assert self._step(store, asks(store, WORKER, [lane], 10, [])) == []
        assert ids_of(self._step(store, asks(store, WORKER, [lane], 10))) == [b]

    def test_a_step_returns_complete_claims(self, store: Store) -> None:
        put_one(store, args='{"a":1}', limits=("x",), details=Details(tags=("t",)), timeout=None)
        (stepped,) = self._step(store, asks(store, OTHER, store.gates(), 10, start=False))
        finish_all(store, [stepped], RELEASED, now=at(1))
        claimed = claim_one(store, stepped.id, now=at(1), worker=OTHER, start=False)
        assert claimed._replace(token=1, seq=None, run_at=T0) == stepped._replace(seq=None)
        assert (stepped.state, stepped.worker, stepped.limits) == (S.CLAIMED, OTHER, ("x",))

    @pytest.mark.parametrize("window", [None, HOUR])
    def test_a_step_releases_a_key_held_until_the_claim(self, store: Store, window: timedelta | None) -> None:
        id = put_one(store, unique=UniqueHold("key", until_claimed=True, window=window))
        assert ids_of(self._step(store, asks(store, WORKER, [Lane("default", "default", 0)], 10))) == [id]
        assert get_one(store, id).unique_key is None
        (answer,) = store.enqueue([a_job(unique=UniqueHold("key"))], now=at(2))
        assert answer.created == (window is None)
        assert store.enqueue([a_job(unique=UniqueHold("other"))], now=at(2))[0].created

    def test_a_step_keeps_a_key_held_until_the_end(self, store: Store) -> None:
        id = put_one(store, unique=UniqueHold("key"))
        self._step(store, asks(store, WORKER, [Lane("default", "default", 0)], 10))
        assert get_one(store, id).unique_key == "key"
        assert store.enqueue([a_job(unique=UniqueHold("key"))], now=at(2)) == [(id, False)]

    def test_a_step_that_ends_a_job_releases_its_key(self, store: Store) -> None:
        claim = claim_one(store, put_one(store, unique=UniqueHold("key")))
        store.step([Finish(claim, COMPLETED)], asks(store, WORKER, [], 0), now=at(1))
        assert store.enqueue([a_job(unique=UniqueHold("key"))], now=at(2))[0].created
