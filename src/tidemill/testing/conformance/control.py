"""Laws of operator and duty actions: move, request_cancel and delete."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidemill.domain import decide
from tidemill.domain.cluster import CancelRequest
from tidemill.domain.decide import COMPLETED, Action
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish, Move
from tidemill.domain.states import ENDED, HELD, LIVE, TRANSITIONS, JobState
from tidemill.domain.stats import Group
from tidemill.ids import new_id
from tidemill.stores.base import Store
from tidemill.testing.conformance.kit import (
    BOOM,
    CANCELLABLE,
    CRASHED,
    ENDS,
    FAILED,
    HOUR,
    OTHER,
    REOPENABLE,
    SECOND,
    T0,
    UNHELD,
    WORKER,
    a_job,
    a_line,
    at,
    bring,
    claim_all,
    claim_one,
    finish_all,
    get_one,
    ids_of,
    put,
    put_one,
    register,
    retry,
    snapshot,
)

S = JobState
WAYS = [(before, after) for before in UNHELD for after in sorted(TRANSITIONS[before]) if after not in HELD]
"""Every allowed transition of a job that is not held."""


class MoveLaws:
    """A job that is not held moves if it is in an expected state."""

    @pytest.mark.parametrize(("before", "after"), WAYS)
    def test_a_job_moves_along_every_allowed_transition(
        self, store: Store, before: JobState, after: JobState
    ) -> None:
        job = bring(store, before)
        delay = HOUR if after is S.SCHEDULED else timedelta(0)
        move = Move(job.id, "default", frozenset({before}), after, "because", delay)
        assert store.move([move], now=at(60)) == {job.id}
        moved = get_one(store, job.id)
        assert (moved.state, moved.reason, moved.token) == (after, "because", job.token)
        assert (moved.attempt, moved.crashes, moved.created_at) == (job.attempt, job.crashes, T0)
        if after in ENDED:
            assert moved.finished_at == at(60)
        else:
            assert (moved.run_at, moved.finished_at) == (at(60) + delay, None)
            assert (after is S.PENDING) == (ids_of(claim_all(store, now=at(60))) == [job.id])

    @pytest.mark.parametrize("before", list(JobState))
    @pytest.mark.parametrize("expect", sorted(set(UNHELD) - {S.COMPLETED}))
    def test_a_job_moves_only_from_an_expected_state(
        self, store: Store, before: JobState, expect: JobState
    ) -> None:
        job = bring(store, before)
        seen = snapshot(store, job.id)
        after = S.PENDING if expect in ENDED else S.CANCELLED
        moved = store.move([Move(job.id, "default", frozenset({expect}), after)], now=at(1))
        assert moved == ({job.id} if expect is before else frozenset())
        assert (snapshot(store, job.id) == seen) == (expect is not before)

    @pytest.mark.parametrize("before", list(JobState))
    def test_a_job_in_an_unexpected_state_is_not_moved(self, store: Store, before: JobState) -> None:
        for expect, after in ((CANCELLABLE - {before}, S.CANCELLED), (REOPENABLE - {before}, S.PENDING)):
            job = bring(store, before)
            seen = snapshot(store, job.id)
            assert store.move([Move(job.id, "default", expect, after)], now=at(1)) == frozenset()
            assert snapshot(store, job.id) == seen

    @pytest.mark.parametrize("state", sorted(HELD))
    @pytest.mark.parametrize("after", [S.PENDING, S.CANCELLED])
    def test_a_held_job_is_never_moved(self, store: Store, state: JobState, after: JobState) -> None:
        job = bring(store, state)
        seen = snapshot(store, job.id)
        assert store.move([Move(job.id, "default", HELD, after)], now=at(1)) == frozenset()
        assert snapshot(store, job.id) == seen

    @pytest.mark.parametrize("state", sorted(set(UNHELD) - {S.COMPLETED}))
    def test_a_job_is_not_moved_for_another_tenant(self, store: Store, state: JobState) -> None:
        job = bring(store, state, tenant="a")
        seen = snapshot(store, job.id)
        after = S.PENDING if state in ENDED else S.CANCELLED
        assert store.move([Move(job.id, "b", frozenset({state}), after)], now=at(1)) == frozenset()
        assert snapshot(store, job.id) == seen

    def test_an_unknown_job_is_not_moved(self, store: Store) -> None:
        assert store.move([Move(new_id(), "default", CANCELLABLE, S.CANCELLED)], now=T0) == frozenset()

    def test_a_batch_moves_what_it_can_and_returns_it(self, store: Store) -> None:
        jobs = [bring(store, state) for state in (S.PENDING, S.RUNNING, S.SCHEDULED, S.COMPLETED, S.WAITING)]
        expect = decide.expected(Action.CANCEL)
        moves = [Move(job.id, "default", expect, S.CANCELLED, "stop") for job in jobs]
        assert store.move(moves, now=T0) == {jobs[0].id, jobs[2].id, jobs[4].id}
        assert [get_one(store, job.id).state for job in jobs] == [
            *(S.CANCELLED, S.RUNNING, S.CANCELLED, S.COMPLETED, S.CANCELLED)
        ]

    @pytest.mark.parametrize("state", sorted(ENDED - {S.COMPLETED}))
    def test_reopening_drops_result_and_error(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        assert (job.result, job.error) == ('{"n":1}', BOOM)
        assert store.move([Move(job.id, "default", REOPENABLE, S.PENDING, "retry")], now=at(1)) == {job.id}
        opened = get_one(store, job.id)
        assert (opened.result, opened.error, opened.finished_at, opened.run_at) == (None, None, None, at(1))
        assert (opened.attempt, opened.token) == (1, 1)

    def test_restart_resets_attempts_and_crashes_but_not_the_token(self, store: Store) -> None:
        id = put_one(store)
        finish_all(store, [claim_one(store, id)], CRASHED)
        finish_all(store, [claim_one(store, id)], FAILED)
        job = get_one(store, id)
        assert (job.attempt, job.crashes, job.token) == (2, 1, 2)
        assert store.move([retry(job)], now=at(1)) == {id}
        opened = get_one(store, id)
        assert (opened.attempt, opened.crashes, opened.token) == (0, 0, 2)
        again = claim_one(store, id)
        assert (again.attempt, again.crashes, again.token) == (1, 0, 3)

    def test_a_token_is_invalid_after_the_job_was_reopened(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], FAILED)
        store.move([retry(get_one(store, claim.id))], now=at(1))
        fresh = claim_one(store, claim.id)
        assert store.finish([Finish(claim, COMPLETED)], now=at(2)) == {claim.id}
        assert store.finish([Finish(fresh, COMPLETED)], now=at(2)) == frozenset()

    def test_approval_keeps_the_result_of_the_review(self, store: Store) -> None:
        job = bring(store, S.REVIEW_NEEDED)
        assert store.move([decide.move(job, Action.APPROVE, "fine")], now=at(1)) == {job.id}
        done = get_one(store, job.id)
        assert (done.state, done.result, done.reason, done.finished_at) == (
            S.COMPLETED,
            '{"n":1}',
            "fine",
            at(1),
        )

    def test_a_reviewed_job_keeps_the_start_of_its_execution_and_adds_no_run_time(self, store: Store) -> None:
        approved, rejected = bring(store, S.REVIEW_NEEDED), bring(store, S.REVIEW_NEEDED)
        moves = [decide.move(approved, Action.APPROVE), decide.move(rejected, Action.REJECT)]
        store.move(moves, now=at(50))
        for job in (approved, rejected):
            (execution,) = store.executions([job.id], tenant=ALL_TENANTS)
            assert execution.started_at is not None
            assert get_one(store, job.id).started_at == execution.started_at
        (ended,) = store.ended_by(Group.TASK, HOUR, tenant=ALL_TENANTS, now=at(60)).rows
        assert (ended.total, ended.ran, ended.run_time) == (2, 0, timedelta(0))
        timings = store.lately([approved.task], per_task=10, tenant=ALL_TENANTS)
        assert [(row.run_time, row.lag) for row in timings] == [(None, None)] * 2

    def test_a_job_cancelled_after_a_rerun_has_no_start(self, store: Store) -> None:
        job = bring(store, S.REVIEW_NEEDED)
        store.move([decide.move(job, Action.RERUN)], now=at(50))
        store.move([decide.move(get_one(store, job.id), Action.CANCEL)], now=at(51))
        cancelled = get_one(store, job.id)
        assert (cancelled.state, cancelled.started_at) == (S.CANCELLED, None)

    def test_a_move_with_a_result_replaces_the_stored_one(self, store: Store) -> None:
        job = bring(store, S.REVIEW_NEEDED)
        move = Move(job.id, "default", frozenset({S.REVIEW_NEEDED}), S.COMPLETED, result='{"n":2}')
        assert store.move([move], now=at(1)) == {job.id}
        assert get_one(store, job.id).result == '{"n":2}'

    def test_reject_and_rerun_end_a_review(self, store: Store) -> None:
        rejected, rerun = bring(store, S.REVIEW_NEEDED), bring(store, S.REVIEW_NEEDED)
        moves = [decide.move(rejected, Action.REJECT), decide.move(rerun, Action.RERUN)]
        assert store.move(moves, now=at(1)) == {rejected.id, rerun.id}
        assert get_one(store, rejected.id).state is S.FAILED
        again = get_one(store, rerun.id)
        assert (again.state, again.attempt, again.token) == (S.PENDING, 0, 1)

    def test_a_moved_job_goes_to_the_end_of_its_lane(self, store: Store) -> None:
        late = put_one(store, delay=HOUR)
        first, second = put(store, a_job(), a_job())
        store.move([decide.move(get_one(store, late), Action.RUN_NOW)], now=at(1))
        assert ids_of(claim_all(store)) == [first, second, late]

    def test_a_woken_job_is_not_promoted_again(self, store: Store) -> None:
        job = bring(store, S.WAITING)
        store.move([decide.move(job, Action.WAKE)], now=at(1))
        assert claim_one(store, job.id).token == 2
        assert store.promote(10, now=at(10**6)).moved == 0

    def test_a_postponed_job_leaves_its_lane_until_it_is_due(self, store: Store) -> None:
        id = put_one(store)
        store.move([Move(id, "default", frozenset({S.PENDING}), S.SCHEDULED, "later", 60 * SECOND)], now=T0)
        assert claim_all(store) == []
        assert store.promote(10, now=at(59)).next_run_at == at(60)
        assert store.promote(10, now=at(60)).moved == 1
        assert claim_one(store, id, now=at(60)).run_at == at(60)


class CancelLaws:
    """A cancel request for a held job reaches its worker, which keeps the job."""

    @pytest.mark.parametrize("state", sorted(HELD))
    def test_a_held_job_shows_its_cancel_request(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        assert store.request_cancel([job.id], tenant="default", reason="enough") == {job.id}
        held = get_one(store, job.id)
        assert (held.state, held.cancel_reason, held.token) == (state, "enough", 1)

    @pytest.mark.parametrize("state", UNHELD)
    def test_only_held_jobs_accept_a_cancel_request(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        seen = snapshot(store, job.id)
        assert store.request_cancel([job.id], tenant="default", reason="enough") == frozenset()
        assert snapshot(store, job.id) == seen

    def test_the_first_cancel_reason_is_kept(self, store: Store) -> None:
        job = bring(store, S.RUNNING)
        store.request_cancel([job.id], tenant="default", reason="one")
        assert store.request_cancel([job.id], tenant="default", reason="two") == {job.id}
        assert get_one(store, job.id).cancel_reason == "one"

    def test_another_tenant_cannot_request_a_cancel(self, store: Store) -> None:
        job = bring(store, S.RUNNING, tenant="a")
        assert store.request_cancel([job.id], tenant="b", reason="x") == frozenset()
        assert get_one(store, job.id).cancel_reason is None
        assert store.request_cancel([job.id], tenant=ALL_TENANTS, reason="x") == {job.id}

    def test_a_cancel_request_for_an_unknown_job_does_nothing(self, store: Store) -> None:
        assert store.request_cancel([new_id()], tenant=ALL_TENANTS, reason="x") == frozenset()

    def test_a_heartbeat_returns_cancel_requests_of_held_jobs(self, store: Store) -> None:
        register(store, WORKER, OTHER)
        put(store, a_job(), a_job())
        mine, theirs = claim_all(store)
        finish_all(store, [theirs], CRASHED)
        theirs = claim_one(store, theirs.id, worker=OTHER)
        store.request_cancel([mine.id, theirs.id], tenant="default", reason="enough")
        requests = [CancelRequest(mine.id, 1, WORKER, "enough")]
        assert store.beat([WORKER], lease=HOUR, now=at(1)).cancels == requests
        assert store.beat([OTHER], lease=HOUR, now=at(1)).cancels == [
            CancelRequest(theirs.id, 2, OTHER, "enough")
        ]
        both = store.beat([WORKER, OTHER], lease=HOUR, now=at(2)).cancels
        assert {request.id for request in both} == {mine.id, theirs.id}

    def test_a_heartbeat_returns_only_jobs_with_a_cancel_request(self, store: Store) -> None:
        register(store, WORKER)
        put(store, a_job(), a_job())
        first, second = claim_all(store)
        assert store.beat([WORKER], lease=HOUR, now=at(1)).cancels == []
        store.request_cancel([second.id], tenant="default", reason="enough")
        assert [request.id for request in store.beat([WORKER], lease=HOUR, now=at(2)).cancels] == [second.id]
        assert get_one(store, first.id).cancel_reason is None

    def test_a_heartbeat_omits_cancel_requests_of_finished_jobs(self, store: Store) -> None:
        register(store, WORKER)
        claim = claim_one(store, put_one(store))
        store.request_cancel([claim.id], tenant="default", reason="enough")
        finish_all(store, [claim])
        assert store.beat([WORKER], lease=HOUR, now=at(1)).cancels == []

    def test_orphans_carry_their_cancel_request(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        store.request_cancel([claim.id], tenant="default", reason="enough")
        store.retire([WORKER], now=at(1))
        assert [orphan.cancel_reason for orphan in store.orphans(10)] == ["enough"]


class DeleteLaws:
    """Only ended jobs can be deleted, and then completely."""

    @pytest.mark.parametrize("state", sorted(ENDED))
    def test_delete_removes_an_ended_job_with_executions_and_logs(
        self, store: Store, state: JobState
    ) -> None:
        claim = claim_one(store, put_one(store))
        store.log([a_line(claim, "one")])
        finish_all(store, [claim], CRASHED)
        claim = claim_one(store, claim.id)
        store.log([a_line(claim, "two")])
        finish_all(store, [claim], ENDS[state], result="1", error=BOOM)
        assert store.delete([claim.id], tenant="default") == {claim.id}
        assert snapshot(store, claim.id) == ([], [], [])
        assert store.delete([claim.id], tenant="default") == frozenset()

    @pytest.mark.parametrize("state", sorted(LIVE))
    def test_a_live_job_is_not_deleted(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        seen = snapshot(store, job.id)
        assert store.delete([job.id], tenant="default") == frozenset()
        assert snapshot(store, job.id) == seen

    def test_a_job_of_another_tenant_is_not_deleted(self, store: Store) -> None:
        job = bring(store, S.COMPLETED, tenant="a")
        assert store.delete([job.id], tenant="b") == frozenset()
        assert ids_of(store.get([job.id], tenant="a")) == [job.id]
        assert store.delete([job.id], tenant=ALL_TENANTS) == {job.id}

    def test_a_batch_deletes_only_ended_jobs(self, store: Store) -> None:
        jobs = [bring(store, state) for state in (S.COMPLETED, S.PENDING, S.FAILED)]
        assert store.delete([*ids_of(jobs), new_id()], tenant="default") == {jobs[0].id, jobs[2].id}

    def test_the_id_of_a_deleted_job_can_be_reused(self, store: Store) -> None:
        job = bring(store, S.FAILED)
        store.delete([job.id], tenant="default")
        put(store, a_job(id=job.id))
        assert snapshot(store, job.id)[1:] == ([], [])
        assert claim_one(store, job.id).token == 1
