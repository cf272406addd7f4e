"""Tests of each duty, run once on a manual clock."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tests.engine.cluster_kit import SECOND, Line, a_worker, claim, enqueue, job, the_jobs

from tidemill.clock import ManualClock
from tidemill.domain.cluster import Coordination
from tidemill.domain.decide import COMPLETED, DEFAULT_POLICY, OrphanRule, Policy
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Details, Finish
from tidemill.domain.retry import Fixed
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.duties import (
    DropEnded,
    Expire,
    Promote,
    Reclaim,
    Sweep,
    TickDuty,
    batch_of,
    usual_duties,
)
from tidemill.engine.duties.removal import MEMORY_RETENTION
from tidemill.engine.duty import Done
from tidemill.errors import StoreCorrupt, StoreUnavailable
from tidemill.stores.base import Listener
from tidemill.stores.memory import MemoryStore

LEASE = timedelta(seconds=30)
MINUTE = timedelta(minutes=1)


def usual(claim: Claim, details: Details) -> Policy:
    return DEFAULT_POLICY


class Harness:
    """A memory store, a worker, a listener and a clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.line = Line(self.memory)
        self.store = self.line.store
        self.listener: Listener = self.memory.listen()

    def heard(self) -> set[str]:
        return set(self.listener.wait(0))

    def worker(self) -> UUID:
        worker = a_worker()
        self.memory.register(worker, lease=LEASE)
        return worker.id

    def running(self, count: int = 1, **fields: Any) -> tuple[UUID, list[UUID]]:
        """A worker that holds this many running jobs."""
        worker = self.worker()
        ids = enqueue(self.memory, count, **fields)
        assert len(claim(self.memory, worker)) == count
        return worker, ids

    def states(self, ids: list[UUID]) -> set[JobState]:
        return {job.state for job in the_jobs(self.memory, ids)}

    def reclaim(self, policy_of: Any = usual, batch: int = 500) -> Reclaim:
        return Reclaim(self.store, self.clock, policy_of, Random(1), batch=batch)

    def expire(self, batch: int = 500) -> Expire:
        return Expire(self.store, self.clock, usual, Random(1), batch=batch)


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.listener.close()
    harness.memory.close()


# ---------------------------------------------------------------------------------------------------- promote


def test_promote_moves_due_jobs_wakes_their_queues_and_returns_the_next_time(harness: Harness) -> None:
    due = enqueue(harness.memory, 3, delay=SECOND, queue="mail")
    (later,) = enqueue(harness.memory, delay=MINUTE, queue="reports")
    promote = Promote(harness.store, batch=2)
    assert promote() == Done(0, harness.clock.now() + SECOND)
    assert harness.heard() == set()
    harness.clock.advance(SECOND)
    assert promote() == Done(2, harness.clock.now(), more=True)
    assert harness.heard() == {"ready:mail"}
    assert promote() == Done(1, harness.clock.now() + MINUTE - SECOND)
    assert harness.states(due) == {JobState.PENDING}
    assert harness.states([later]) == {JobState.SCHEDULED}


# ---------------------------------------------------------------------------------------------------- reclaim


def test_a_job_of_a_dead_worker_is_pending_again_and_is_charged_one_crash(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    worker, (id,) = harness.running(queue="mail")
    reclaim = harness.reclaim()
    for seconds in (0, 12, 17, 5):
        harness.clock.advance(seconds * SECOND)
        assert reclaim().items == 0  # its lease may have ended, and the worker has five seconds to stop
    harness.clock.advance(SECOND)
    with caplog.at_level(logging.WARNING, "tidemill.engine"):
        assert reclaim() == Done(1)
    found = job(harness.memory, id)
    assert (found.state, found.attempt, found.crashes) == (JobState.PENDING, 1, 1)
    assert found.reason == f"worker {worker} is gone"
    (execution,) = harness.memory.executions([id], tenant=ALL_TENANTS)
    assert (execution.state, execution.worker) == (ExecutionState.CRASHED, worker)
    assert harness.heard() == {"ready:mail"}
    assert str(id) in caplog.text
    assert str(worker) in caplog.text
    assert reclaim() == Done(0)


def test_a_claimed_job_that_never_started_is_reclaimed_too(harness: Harness) -> None:
    worker = harness.worker()
    (id,) = enqueue(harness.memory)
    claim(harness.memory, worker, start=False)
    harness.memory.retire([worker])
    assert harness.reclaim()().items == 1
    assert job(harness.memory, id).state is JobState.PENDING


def test_a_job_that_kills_its_worker_ends_after_three_crashes(harness: Harness) -> None:
    (id,) = enqueue(harness.memory, max_attempts=100)
    reclaim = harness.reclaim()
    deaths = 0
    while job(harness.memory, id).state is JobState.PENDING:
        worker = harness.worker()
        claim(harness.memory, worker)
        deaths += 1
        assert deaths <= 3
        assert reclaim.now([worker]) == 1
    assert deaths == 3
    found = job(harness.memory, id)
    assert found.state is JobState.DEAD_LETTERED
    assert found.reason is not None
    assert found.reason.startswith("crash_loop")
    assert "ended" in harness.heard()


def test_a_job_with_a_cancel_request_or_past_its_expiry_is_cancelled(harness: Harness) -> None:
    first, (stopped,) = harness.running()
    harness.memory.request_cancel([stopped], tenant=ALL_TENANTS, reason="enough")
    second, (expired,) = harness.running(expires_at=harness.clock.now() + SECOND)
    harness.clock.advance(SECOND)
    assert harness.reclaim().now([first, second]) == 2
    assert job(harness.memory, stopped).reason == "enough"
    assert job(harness.memory, expired).reason == "expired"
    assert harness.states([stopped, expired]) == {JobState.CANCELLED}
    assert harness.heard() == {"ended"}


def test_each_job_follows_its_own_policy_and_details_are_read_once(harness: Harness) -> None:
    seen: dict[UUID, Details] = {}

    def policy_of(claim: Claim, details: Details) -> Policy:
        seen[claim.id] = details
        return replace(DEFAULT_POLICY, orphans=OrphanRule(str(details.options.get("orphans", "requeue"))))

    ids = [
        *enqueue(harness.memory, 5),
        *enqueue(harness.memory, 5, details=Details(options={"orphans": "review"})),
        *enqueue(harness.memory, 5, details=Details(options={"orphans": "fail"})),
    ]
    worker = harness.worker()
    claim(harness.memory, worker)
    harness.heard()
    harness.reclaim(policy_of).now([worker])
    assert harness.heard() == {
        "ready:default",
        "scheduled",
        "ended",
        "cascade",
    }  # one topic for each kind of end
    assert set(seen) == set(ids)
    assert [found.state for found in the_jobs(harness.memory, ids)] == [
        *[JobState.PENDING] * 5,
        *[JobState.REVIEW_NEEDED] * 5,
        *[JobState.FAILED] * 5,
    ]
    assert harness.line.calls.count("get") == 1


def test_a_policy_lookup_that_fails_does_not_prevent_a_reclaim(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    def policy_of(claim: Claim, details: Details) -> Policy:
        raise LookupError("no such task here")

    worker, ids = harness.running(10)
    with caplog.at_level(logging.ERROR, "tidemill.engine"):
        assert harness.reclaim(policy_of).now([worker]) == 10
    assert harness.states(ids) == {JobState.PENDING}
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


def test_an_unwritable_row_in_a_batch_does_not_block_the_others(harness: Harness) -> None:
    worker, ids = harness.running(20)
    poison = {ids[0], ids[7], ids[13]}

    def broken(verb: str, given: tuple[Any, ...]) -> Exception | None:
        bad = verb == "finish" and poison & {finish.claim.id for finish in given[0]}
        return StoreCorrupt("this row cannot be written") if bad else None

    harness.line.broken = broken
    reclaim = harness.reclaim(batch=5)
    assert reclaim.now([worker]) == 17
    assert harness.states([id for id in ids if id not in poison]) == {JobState.PENDING}
    assert reclaim() == Done(0)
    harness.line.mend()
    assert reclaim() == Done(0)  # these rows are not tried again for a minute
    harness.clock.advance(MINUTE)
    assert reclaim.now([]) == 3


def test_an_outage_during_a_reclaim_raises_and_the_next_run_continues(harness: Harness) -> None:
    worker, ids = harness.running(10)
    reclaim = harness.reclaim(batch=4)
    harness.memory.retire([worker])
    reclaim()
    harness.line.broken = lambda verb, given: StoreUnavailable("gone") if verb == "finish" else None
    with pytest.raises(StoreUnavailable):
        reclaim()
    harness.line.mend()
    assert reclaim.now([]) == 6
    assert harness.states(ids) == {JobState.PENDING}


@pytest.mark.long
def test_ten_thousand_orphans_are_reclaimed_in_bounded_batches(harness: Harness) -> None:
    worker = harness.worker()
    ids = enqueue(harness.memory, 10_000)
    claim(harness.memory, worker, 10_000)
    assert harness.reclaim().now([worker]) == 10_000
    assert harness.states(ids) == {JobState.PENDING}
    assert 20 <= harness.line.calls.count("finish") <= 21


# ----------------------------------------------------------------------------------------------------- expire


def test_a_job_past_its_timeout_is_ended_only_after_a_margin_for_its_runner(harness: Harness) -> None:
    _, (id,) = harness.running(timeout=SECOND)
    expire = harness.expire()
    assert expire() == Done(0)
    harness.clock.advance(10 * SECOND)
    assert expire() == Done(0)
    harness.clock.advance(14 * SECOND)
    assert expire() == Done(0)
    harness.clock.advance(SECOND)
    assert expire() == Done(1)
    found = job(harness.memory, id)
    assert (found.state, found.reason) == (JobState.SCHEDULED, "exceeded timeout of 1 seconds")
    assert harness.heard() == {"scheduled"}


def test_the_margin_restarts_for_a_new_claim_of_the_same_job(harness: Harness) -> None:
    worker, (id,) = harness.running(timeout=SECOND)
    expire = harness.expire()
    expire()
    harness.clock.advance(SECOND)
    assert expire() == Done(0)
    harness.reclaim().now([worker])
    claim(harness.memory, harness.worker())
    harness.clock.advance(16 * SECOND)
    assert expire() == Done(0)
    harness.clock.advance(15 * SECOND)
    assert expire() == Done(1)
    assert job(harness.memory, id).state is JobState.SCHEDULED


def test_the_last_attempt_ends_as_timed_out(harness: Harness) -> None:
    _, ids = harness.running(3, timeout=SECOND, max_attempts=1)
    expire = Expire(harness.store, harness.clock, lambda claim, details: Policy(Fixed(1)), Random(1), batch=2)
    expire()
    harness.clock.advance(2 * SECOND)
    expire()
    harness.clock.advance(15 * SECOND)
    assert expire() == Done(2, more=True)
    assert expire() == Done(0)  # seen for the first time
    harness.clock.advance(15 * SECOND)
    assert expire() == Done(1)
    assert harness.states(ids) == {JobState.TIMED_OUT}
    assert harness.heard() == {"ended"}


# ----------------------------------------------------------------------------- sweep, retention, tick, all of them


def test_workers_are_deleted_an_hour_after_they_ended(harness: Harness) -> None:
    worker = harness.worker()
    harness.memory.retire([worker])
    sweep = Sweep(harness.store)
    harness.clock.advance(timedelta(minutes=59))
    assert sweep() == Done(0)
    harness.clock.advance(MINUTE)
    assert sweep() == Done(1)
    assert harness.memory.workers() == []


def test_ended_jobs_in_memory_are_deleted_after_15_minutes_or_an_hour(harness: Harness) -> None:
    worker, completed = harness.running(600)
    other, failed = harness.running(2, max_attempts=1)
    harness.memory.retire([worker])
    held = harness.memory.orphans(1000)
    harness.memory.finish([Finish(claim, COMPLETED) for claim in held])
    assert harness.reclaim().now([other]) == 2
    retention = DropEnded(harness.store)
    harness.clock.advance(timedelta(minutes=14))
    assert retention() == Done(0)
    harness.clock.advance(MINUTE)
    assert retention() == Done(500, more=True)
    assert retention() == Done(100)
    harness.clock.advance(timedelta(minutes=45))
    assert the_jobs(harness.memory, completed) == []
    assert len(the_jobs(harness.memory, failed)) == 2
    assert retention() == Done(2)


def test_a_tick_repeats_the_wake_up_of_every_queue_with_pending_jobs(harness: Harness) -> None:
    promote = Promote(harness.store, tick=TickDuty(harness.clock))
    assert promote() == Done(0)
    assert harness.heard() == {"tick"}
    enqueue(harness.memory, 2, queue="mail")
    enqueue(harness.memory, 1, queue="mail", tenant="acme")
    enqueue(harness.memory, 1, queue="reports")
    enqueue(harness.memory, 1, queue="later", delay=MINUTE)
    assert promote().items == 0
    assert harness.heard() == set()  # too soon after the last tick
    harness.clock.advance(timedelta(seconds=5))
    assert promote().items == 0
    assert harness.heard() == {"tick", "ready:mail", "ready:reports"}
    harness.clock.advance(MINUTE)
    assert promote() == Done(1)
    assert harness.heard() == {"tick", "ready:later", "ready:mail", "ready:reports"}


def test_the_default_duties_include_retention_only_on_request(harness: Harness) -> None:
    names = [duty.name for duty in usual_duties(harness.store, harness.clock, usual, Random(1))]
    assert sorted(names) == [
        "blobs",
        "cancel_expired",
        "cascade",
        "expire",
        "fire",
        "fold",
        "promote",
        "react",
        "receivers",
        "reclaim",
        "recount",
        "sweep",
        "wake",
    ]
    more = usual_duties(harness.store, harness.clock, usual, Random(1), retention=MEMORY_RETENTION)
    assert {duty.name for duty in more} - set(names) == {"retention"}
    assert (batch_of(Coordination.STEAL), batch_of(Coordination.LEASE)) == (100, 500)
