"""Laws of finish, executions and step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish, Move, Transition
from tidemill.domain.states import ENDED, ExecutionState, JobState
from tidemill.stores.base import StepResult, Store
from tidemill.testing.conformance.kit import (
    AGAIN,
    ASLEEP,
    BACKS,
    BOOM,
    CANCELLABLE,
    CRASHED,
    ENDS,
    FAILED,
    HOUR,
    LATER,
    OTHER,
    RELEASED,
    REVIEW,
    SUSPENDED,
    T0,
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
    retry,
    snapshot,
    wants,
)

S, E = JobState, ExecutionState


class FinishLaws:
    """A job leaves its worker by exactly one finish."""

    @pytest.mark.parametrize("state", sorted(ENDS))
    @pytest.mark.parametrize("start", [True, False])
    def test_a_held_job_can_reach_every_final_state(self, store: Store, state: JobState, start: bool) -> None:
        claim = claim_one(store, put_one(store), start=start)
        finish_all(store, [claim], ENDS[state], now=at(5), result='{"ok":true}', error=BOOM)
        job = get_one(store, claim.id)
        assert (job.state, job.reason, job.result, job.error) == (
            state,
            ENDS[state].reason,
            '{"ok":true}',
            BOOM,
        )
        assert (job.attempt, job.crashes, job.token, job.finished_at) == (1, 0, 1, at(5))

    @pytest.mark.parametrize("state", sorted(ENDS))
    def test_an_ended_job_cannot_be_claimed_promoted_or_finished_again(
        self, store: Store, state: JobState
    ) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], ENDS[state])
        before = snapshot(store, claim.id)
        assert store.promote(100, now=at(10**6)).moved == 0
        assert claim_all(store) == []
        assert store.finish([Finish(claim, FAILED)], now=at(9)) == {claim.id}
        assert snapshot(store, claim.id) == before

    @pytest.mark.parametrize("start", [True, False])
    def test_a_job_can_go_back_to_pending(self, store: Store, start: bool) -> None:
        claim = claim_one(store, put_one(store), start=start)
        finish_all(store, [claim], AGAIN, now=at(5))
        job = get_one(store, claim.id)
        assert (job.state, job.run_at, job.reason, job.created_at) == (S.PENDING, at(5), "once more", T0)
        assert (job.finished_at, job.attempt, job.token) == (None, 1, 1)

    def test_a_job_back_to_pending_is_last_in_its_lane(self, store: Store) -> None:
        first, second, third = put(store, a_job(), a_job(), a_job())
        (claim,) = claim_all(store, limit=1)
        finish_all(store, [claim], AGAIN)
        again = claim_all(store)
        assert ids_of(again) == [second, third, first]
        assert again[-1].seq is not None
        assert claim.seq is not None
        assert again[-1].seq > claim.seq

    def test_a_job_can_be_scheduled_again(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], LATER, now=at(5), error=BOOM)
        job = get_one(store, claim.id)
        assert (job.state, job.run_at, job.reason) == (S.SCHEDULED, at(5) + HOUR, "in an hour")
        assert store.lanes() == []

    def test_the_delay_counts_from_now(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], LATER, now=at(50), started_ago=8.0, ended_ago=4.0)
        assert get_one(store, claim.id).run_at == at(50) + HOUR

    @pytest.mark.parametrize("transition", [SUSPENDED, ASLEEP])
    def test_a_job_can_wait(self, store: Store, transition: Transition) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], transition, now=at(5))
        job = get_one(store, claim.id)
        assert (job.state, job.reason, job.attempt) == (S.WAITING, transition.reason, 0)
        assert job.run_at == at(5) + transition.delay

    def test_a_review_keeps_its_result(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], REVIEW, now=at(5), result='{"draft":"…"}')
        job = get_one(store, claim.id)
        assert (job.state, job.reason, job.result, job.attempt) == (
            S.REVIEW_NEEDED,
            "please look",
            '{"draft":"…"}',
            1,
        )
        assert job.finished_at is None

    @pytest.mark.parametrize("state", sorted(BACKS))
    def test_a_job_that_went_back_is_not_held(self, store: Store, state: JobState) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], BACKS[state])
        assert get_one(store, claim.id).worker is None
        assert store.orphans(100) == store.overdue(100, now=at(10**6)) == []

    @pytest.mark.parametrize("state", sorted(BACKS))
    @pytest.mark.parametrize("refund", [True, False])
    @pytest.mark.parametrize("crashed", [True, False])
    def test_refund_returns_the_attempt_and_crashed_counts_a_crash(
        self, store: Store, state: JobState, refund: bool, crashed: bool
    ) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], replace(BACKS[state], refund=refund, crashed=crashed))
        job = get_one(store, claim.id)
        counts = (0 if refund else 1, 1 if crashed else 0)
        if state is S.WAITING:  # attempts of a suspended job start again from zero
            counts = (0, 0)
        assert (job.attempt, job.crashes, job.token) == (*counts, 1)

    @pytest.mark.parametrize("state", sorted(ENDS))
    def test_a_crash_that_ends_a_job_is_counted(self, store: Store, state: JobState) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], replace(ENDS[state], crashed=True))
        assert (get_one(store, claim.id).attempt, get_one(store, claim.id).crashes) == (1, 1)

    def test_a_refunded_attempt_is_counted_again_and_the_token_never_falls(self, store: Store) -> None:
        id = put_one(store)
        for number in (1, 2, 3):
            claim = claim_one(store, id)
            assert (claim.attempt, claim.token) == (1, number)
            finish_all(store, [claim], RELEASED)
        assert [execution.attempt for execution in executions_of(store, id)] == [1, 1, 1]

    def test_crashes_add_up_over_claims(self, store: Store) -> None:
        id = put_one(store)
        for number in (1, 2, 3):
            finish_all(store, [claim_one(store, id)], CRASHED)
            assert get_one(store, id).crashes == number

    def test_ages_are_subtracted_from_now(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], now=at(100), started_ago=2.5, ended_ago=0.25)
        (execution,) = executions_of(store, claim.id)
        job = get_one(store, claim.id)
        assert (job.started_at, job.finished_at) == (at(97.5), at(99.75))
        assert (execution.started_at, execution.finished_at) == (at(97.5), at(99.75))

    def test_ages_are_applied_to_an_execution_that_is_retried(self, store: Store) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], AGAIN, now=at(100), started_ago=2.5, ended_ago=0.25)
        (execution,) = executions_of(store, claim.id)
        assert (execution.started_at, execution.finished_at) == (at(97.5), at(99.75))

    @pytest.mark.parametrize("transition", [COMPLETED, AGAIN])
    def test_without_an_age_the_stored_start_is_kept(self, store: Store, transition: Transition) -> None:
        claim = claim_one(store, put_one(store), start=False)
        store.start([claim], now=at(7))
        finish_all(store, [claim], transition, now=at(9))
        (execution,) = executions_of(store, claim.id)
        assert (execution.claimed_at, execution.started_at, execution.finished_at) == (T0, at(7), at(9))

    def test_an_execution_that_never_started_has_no_start_time(self, store: Store) -> None:
        claim = claim_one(store, put_one(store), start=False)
        finish_all(store, [claim], RELEASED)
        assert executions_of(store, claim.id)[0].started_at is None

    def test_a_batch_finishes_held_jobs_and_returns_lost_ones(self, store: Store) -> None:
        put(store, a_job(), a_job(), a_job())
        one, two, three = claim_all(store)
        batch = [Finish(one, COMPLETED), Finish(two._replace(token=7), COMPLETED), Finish(three, LATER)]
        assert store.finish(batch, now=T0) == {two.id}
        assert [get_one(store, c.id).state for c in (one, two, three)] == [
            S.COMPLETED,
            S.RUNNING,
            S.SCHEDULED,
        ]

    def test_a_batch_may_contain_every_transition(self, store: Store) -> None:
        ways = [*ENDS.values(), *BACKS.values(), ASLEEP, RELEASED, CRASHED]
        put(store, *[a_job() for _ in ways])
        claims = claim_all(store)
        batch = [
            Finish(claim, way, result=f'"{n}"')
            for n, (claim, way) in enumerate(zip(claims, ways, strict=True))
        ]
        assert store.finish(batch, now=T0) == frozenset()
        assert [get_one(store, claim.id).state for claim in claims] == [way.state for way in ways]


class ExecutionLaws:
    """An execution is recorded exactly once, and shown exactly once."""

    @pytest.mark.parametrize("state", sorted(ENDS))
    def test_the_execution_that_ended_the_job_is_shown_once(self, store: Store, state: JobState) -> None:
        claim = claim_one(store, put_one(store), now=at(1))
        finish_all(store, [claim], ENDS[state], now=at(2), error=BOOM)
        (execution,) = executions_of(store, claim.id)
        assert (execution.job_id, execution.number, execution.attempt) == (claim.id, 1, 1)
        assert (execution.state, execution.reason) == (ENDS[state].execution, ENDS[state].reason)
        assert (execution.worker, execution.error) == (WORKER, BOOM)
        assert (execution.claimed_at, execution.started_at, execution.finished_at) == (at(1), at(1), at(2))

    @pytest.mark.parametrize("state", sorted(BACKS))
    def test_an_execution_that_is_retried_is_shown_once(self, store: Store, state: JobState) -> None:
        claim = claim_one(store, put_one(store))
        finish_all(store, [claim], BACKS[state], now=at(2), error=BOOM)
        (execution,) = executions_of(store, claim.id)
        assert (execution.number, execution.attempt, execution.worker) == (1, 1, WORKER)
        assert (execution.state, execution.reason) == (BACKS[state].execution, BACKS[state].reason)
        assert (execution.error, execution.finished_at) == (BOOM, at(2))

    def test_executions_are_ordered_by_number(self, store: Store) -> None:
        id = put_one(store)
        for transition, worker in ((AGAIN, WORKER), (RELEASED, OTHER), (CRASHED, WORKER)):
            finish_all(store, [claim_one(store, id, worker=worker)], transition)
        claim_one(store, id, worker=OTHER)
        shown = executions_of(store, id)
        assert [execution.number for execution in shown] == [1, 2, 3, 4]
        assert [execution.state for execution in shown] == [E.FAILED, E.RELEASED, E.CRASHED, E.RUNNING]
        assert [execution.worker for execution in shown] == [WORKER, OTHER, WORKER, OTHER]
        assert [execution.attempt for execution in shown] == [1, 2, 2, 3]

    def test_an_ended_job_shows_all_its_executions(self, store: Store) -> None:
        id = put_one(store)
        finish_all(store, [claim_one(store, id)], AGAIN)
        finish_all(store, [claim_one(store, id)], COMPLETED)
        assert [(x.number, x.state) for x in executions_of(store, id)] == [(1, E.FAILED), (2, E.SUCCEEDED)]

    @pytest.mark.parametrize("state", sorted(ENDED - {S.COMPLETED}))
    def test_a_reopened_job_keeps_its_last_execution(self, store: Store, state: JobState) -> None:
        job = bring(store, state)
        before = executions_of(store, job.id)
        assert store.move([retry(job)], now=at(5)) == {job.id}
        assert executions_of(store, job.id) == before
        finish_all(store, [claim_one(store, job.id, now=at(6), worker=OTHER)], COMPLETED, now=at(7))
        shown = executions_of(store, job.id)
        assert shown[:1] == before
        assert [(x.number, x.attempt, x.state) for x in shown[1:]] == [(2, 1, E.SUCCEEDED)]

    def test_a_job_reopened_repeatedly_shows_each_execution_once(self, store: Store) -> None:
        id = put_one(store)
        for number in range(1, 4):
            finish_all(store, [claim_one(store, id)], FAILED)
            assert store.move([retry(get_one(store, id))], now=T0) == {id}
            assert [execution.number for execution in executions_of(store, id)] == [*range(1, number + 1)]

    def test_a_job_that_ended_unheld_has_no_execution_for_that_end(self, store: Store) -> None:
        fresh, tried, seen = put_one(store, queue="a"), put_one(store, queue="b"), put_one(store, queue="c")
        finish_all(store, [claim_one(store, tried, queues=["b"])], AGAIN)
        finish_all(store, [claim_one(store, seen, queues=["c"])], REVIEW)
        moves = [Move(id, "default", CANCELLABLE, S.CANCELLED, "no") for id in (fresh, tried, seen)]
        assert store.move(moves, now=T0) == {fresh, tried, seen}
        assert executions_of(store, fresh) == []
        assert [execution.state for execution in executions_of(store, tried)] == [E.FAILED]
        assert [execution.state for execution in executions_of(store, seen)] == [E.REVIEW]
        assert store.move([retry(get_one(store, fresh)), retry(get_one(store, tried))], now=T0) == {
            fresh,
            tried,
        }
        assert executions_of(store, fresh) == []
        assert [execution.state for execution in executions_of(store, tried)] == [E.FAILED]

    def test_executions_of_several_jobs_are_ordered_by_job_and_number(self, store: Store) -> None:
        ids = put(store, a_job(), a_job(), a_job())
        for _ in range(2):
            finish_all(store, claim_all(store), AGAIN)
        shown = store.executions(list(reversed(ids)), tenant=ALL_TENANTS)
        assert [(x.job_id, x.number) for x in shown] == [(id, number) for id in ids for number in (1, 2)]


class StepLaws:
    """A step finishes one batch and claims the next."""

    def test_a_step_finishes_and_claims(self, store: Store) -> None:
        put(store, a_job(), a_job())
        (done,) = claim_all(store, limit=1)
        step = store.step([Finish(done, COMPLETED, '"r"')], wants(store, limit=1), now=at(4))
        assert step.lost == frozenset()
        (claim,) = step.claims
        assert (claim.attempt, claim.token, claim.worker, claim.state) == (1, 1, WORKER, S.RUNNING)
        assert (get_one(store, done.id).state, get_one(store, done.id).result) == (S.COMPLETED, '"r"')
        assert get_one(store, claim.id).claimed_at == at(4)

    def test_a_step_may_only_claim(self, store: Store) -> None:
        id = put_one(store)
        assert ids_of(store.step([], wants(store), now=T0).claims) == [id]

    def test_a_step_may_only_finish(self, store: Store) -> None:
        put(store, a_job(), a_job())
        (done,) = claim_all(store, limit=1)
        assert store.step([Finish(done, COMPLETED)], wants(store, limit=0), now=T0) == StepResult(
            frozenset(), []
        )

    def test_a_step_with_a_lost_claim_reports_it_and_still_claims(self, store: Store) -> None:
        put(store, a_job(), a_job())
        (mine,) = claim_all(store, limit=1)
        before = snapshot(store, mine.id)
        step = store.step([Finish(mine._replace(token=2), COMPLETED)], wants(store), now=T0)
        assert step.lost == {mine.id}
        assert len(step.claims) == 1
        assert snapshot(store, mine.id) == before

    def test_a_step_claims_without_starting_when_asked(self, store: Store) -> None:
        put_one(store)
        assert [claim.state for claim in store.step([], wants(store, start=False), now=T0).claims] == [
            S.CLAIMED
        ]

    def test_steps_drain_a_store(self, store: Store) -> None:
        ids = put(store, *[a_job() for _ in range(25)])
        batch: list[Finish] = []
        seen = []
        while True:
            step = store.step(batch, wants(store, limit=4), now=T0)
            assert step.lost == frozenset()
            seen += ids_of(step.claims)
            batch = [Finish(claim, COMPLETED) for claim in step.claims]
            if not batch:
                break
        assert seen == ids
        assert {job.state for job in store.get(ids, tenant=ALL_TENANTS)} == {S.COMPLETED}
