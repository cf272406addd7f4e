"""Tests of the heartbeat thread, with failing stores and callbacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from random import Random
from uuid import UUID

import pytest
from tests.engine.cluster_kit import SECOND, Line, a_worker, claim, enqueue, eventually

from tidemill.clock import ManualClock, SystemClock
from tidemill.domain.cluster import CancelRequest, Worker, WorkerState
from tidemill.domain.decide import COMPLETED
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Finish
from tidemill.domain.liveness import holds_for, margin
from tidemill.engine.heartbeat import HeartbeatThread
from tidemill.errors import StoreBusy, StoreCorrupt, StoreUnavailable, UsageError
from tidemill.ids import new_id
from tidemill.stores.memory import MemoryStore

BEAT, EXPIRY = timedelta(seconds=5), timedelta(seconds=30)


class Body:
    """A heartbeat on a manual clock that records all its callbacks."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.line = Line(self.memory)
        self.cancels: list[CancelRequest] = []
        self.drains: list[UUID] = []
        self.lost: list[UUID] = []
        self.heart = HeartbeatThread(
            self.line.store,
            self.clock,
            beat=BEAT,
            expiry=EXPIRY,
            on_cancel=self.cancels.append,
            on_drain=self.drains.append,
            on_lost=self.lost.append,
            random=Random(1),
        )

    def add(self) -> Worker:
        worker = a_worker()
        self.heart.add(worker)
        return worker

    def beats(self) -> int:
        return self.line.calls.count("beat")

    def pass_time(self, seconds: float) -> None:
        """Step the heartbeat as its thread would, from one due time to the next."""
        until = self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0:
            wait = min(self.heart.step(), left)
            # Fractions of a microsecond are rounded down.
            self.clock.advance(timedelta(seconds=wait, microseconds=1))

    def now_known(self, id: UUID) -> Worker:
        return next(worker for worker in self.memory.workers() if worker.id == id)


@pytest.fixture
def body() -> Iterator[Body]:
    body = Body()
    yield body
    body.heart.close()
    body.memory.close()


# ---------------------------------------------------------------------------------------------------- beating


def test_a_worker_is_registered_when_it_is_added(body: Body) -> None:
    worker = body.add()
    known = body.now_known(worker.id)
    assert known.expires_at == body.clock.now() + EXPIRY
    assert body.heart.ages() == {worker.id: 0.0}


def test_an_error_while_registering_a_worker_is_raised_to_the_caller(body: Body) -> None:
    worker = body.add()
    with pytest.raises(UsageError):
        body.heart.add(worker)
    body.line.cut()
    with pytest.raises(StoreUnavailable):
        body.heart.add(a_worker())
    assert list(body.heart.ages()) == [worker.id]


def test_one_call_renews_all_workers_every_five_seconds(body: Body) -> None:
    ids = {body.add().id for _ in range(3)}
    body.pass_time(61)
    assert body.beats() == 12
    assert {body.now_known(id).beats for id in ids} == {12}
    assert body.lost == []


def test_without_workers_the_store_is_not_called(body: Body) -> None:
    body.pass_time(3600)
    assert body.line.calls == []


def test_the_age_of_a_heartbeat_counts_from_before_it_was_sent(body: Body) -> None:
    worker = body.add()
    body.clock.advance(BEAT)

    def slow(verb: str, given: object) -> None:
        body.clock.advance(2 * SECOND)

    body.line.broken = slow
    body.heart.step()
    assert body.heart.ages() == {worker.id: 2.0}


def test_repeated_requests_beat_at_once_but_at_most_ten_times_a_second(body: Body) -> None:
    body.add()
    body.clock.advance(SECOND)
    for _ in range(100):
        body.heart.beat_soon()
        body.heart.step()
        body.clock.advance(timedelta(milliseconds=10))
    assert 9 <= body.beats() <= 11


def test_a_removed_worker_is_retired_and_no_longer_renewed(body: Body) -> None:
    worker, other = body.add(), body.add()
    body.heart.remove(worker.id)
    assert body.now_known(worker.id).state is WorkerState.STOPPED
    body.pass_time(6)
    assert list(body.heart.ages()) == [other.id]
    assert body.lost == []
    kept = body.add()
    body.heart.remove(kept.id, retire=False)
    assert body.now_known(kept.id).state is WorkerState.ACTIVE


def test_a_worker_that_cannot_be_retired_is_left_to_its_lease(body: Body) -> None:
    worker = body.add()
    body.line.cut()
    body.heart.remove(worker.id)
    assert body.heart.ages() == {}


# --------------------------------------------------------------------------------------------------- callbacks


def test_a_cancel_is_passed_on_once_per_claim(body: Body) -> None:
    worker = body.add()
    (id,) = enqueue(body.memory)
    (held,) = claim(body.memory, worker.id)
    body.memory.request_cancel([id], tenant=ALL_TENANTS, reason="enough")
    body.pass_time(16)
    assert body.cancels == [CancelRequest(id, held.token, worker.id, "enough")]

    # The request ends with the job. A cancel of another job is a new request.
    body.memory.finish([Finish(held, COMPLETED)])
    (other,) = enqueue(body.memory)
    (again,) = claim(body.memory, worker.id)
    body.memory.request_cancel([other], tenant=ALL_TENANTS, reason="that too")
    body.heart.beat_soon()
    body.pass_time(11)
    assert [request[:2] for request in body.cancels] == [(id, held.token), (other, again.token)]


def test_a_drain_is_passed_on_once_per_worker(body: Body) -> None:
    worker, other = body.add(), body.add()
    body.memory.drain([worker.id])
    body.pass_time(16)
    assert body.drains == [worker.id]
    body.memory.drain([other.id])
    body.pass_time(6)
    assert body.drains == [worker.id, other.id]


def test_a_worker_that_the_store_gave_up_is_lost_once_and_the_others_continue(body: Body) -> None:
    gone, lives = body.add(), body.add()
    body.memory.retire([gone.id])
    body.pass_time(16)
    assert body.lost == [gone.id]
    assert list(body.heart.ages()) == [lives.id]


def test_a_failing_callback_does_not_prevent_the_other_callbacks(
    body: Body, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(about: object) -> None:
        raise RuntimeError("deaf")

    line = Line(body.memory)
    heart = HeartbeatThread(
        line.store, body.clock, beat=BEAT, expiry=EXPIRY, on_cancel=fail, on_drain=fail, on_lost=fail
    )
    workers = [a_worker(), a_worker()]
    for worker in workers:
        heart.add(worker)
    body.memory.drain([workers[0].id])
    body.memory.retire([workers[1].id])
    body.clock.advance(BEAT)
    with caplog.at_level(logging.ERROR, "tidemill.engine"):
        heart.step()
    assert sum("a heartbeat callback failed" in record.message for record in caplog.records) == 2
    assert list(heart.ages()) == [workers[0].id]


# ---------------------------------------------------------------------------------------------------- failures


@pytest.mark.parametrize("error", [StoreBusy, StoreUnavailable, StoreCorrupt, RuntimeError])
def test_a_failing_heartbeat_is_retried_soon_and_logged_once(
    body: Body, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    worker = body.add()
    body.line.broken = lambda verb, given: error("not now")
    with caplog.at_level(logging.INFO, "tidemill.engine"):
        body.pass_time(14)
        assert body.beats() >= 4
        assert [record.levelname for record in caplog.records] in (["WARNING"], ["ERROR"])
        body.line.mend()
        body.pass_time(6)
    assert [record.levelname for record in caplog.records][1:] == ["INFO"]
    assert body.lost == []
    assert body.heart.ages()[worker.id] < 6


def test_a_worker_is_given_up_before_the_store_can_reassign_its_jobs(body: Body) -> None:
    worker = body.add()
    body.pass_time(5)
    body.heart.step()
    confirmed = body.clock.monotonic()
    body.line.cut()
    while wait := body.heart.step():
        if body.lost:
            break
        body.clock.advance(timedelta(seconds=wait, microseconds=1))
    assert body.clock.monotonic() - confirmed == pytest.approx(holds_for(EXPIRY), abs=0.01)
    # The time left to stop its handlers.
    assert body.memory.heartbeats()[0].left.total_seconds() + margin(EXPIRY) == pytest.approx(5, abs=0.01)
    body.line.mend()
    before = body.beats()
    body.pass_time(30)
    assert body.lost == [worker.id]
    assert body.beats() == before


def test_an_outage_of_twenty_seconds_costs_no_lease_at_any_phase(body: Body) -> None:
    worker = body.add()
    for _ in range(12):
        while body.heart.ages()[worker.id] < 4.9:
            body.pass_time(0.1)
        body.line.cut()
        body.pass_time(20)
        body.line.mend()
        body.pass_time(6)
    assert body.lost == []
    assert worker.id in body.heart.ages()


@pytest.mark.parametrize("declared", [True, False])
def test_a_heartbeat_that_was_suspended_checks_whether_its_worker_is_gone(body: Body, declared: bool) -> None:
    worker = body.add()
    body.clock.advance(timedelta(minutes=5))  # the process was suspended
    if declared:
        body.memory.declare_gone([(worker.id, 0)])
    body.heart.step()
    assert body.beats() == 1
    assert body.lost == ([worker.id] if declared else [])


def test_a_heartbeat_that_was_suspended_gives_up_if_the_store_does_not_answer(body: Body) -> None:
    worker = body.add()
    body.clock.advance(timedelta(minutes=5))
    body.line.cut()
    body.heart.step()
    assert body.lost == [worker.id]


def test_while_a_heartbeat_is_overdue_it_is_retried_every_two_seconds(body: Body) -> None:
    body.add()
    body.line.cut()
    body.pass_time(29)
    assert body.beats() >= 12


@pytest.mark.parametrize("seconds", [60, -60, 3600, -3600])
def test_a_jump_of_the_wall_clock_loses_no_worker(body: Body, seconds: int) -> None:
    body.add()
    for _ in range(3):
        body.pass_time(7)
        body.clock.leap(timedelta(seconds=seconds))
    body.pass_time(6)
    assert body.lost == []
    assert body.memory.heartbeats()[0].left > BEAT


def test_confirmed_heartbeats_are_passed_on_with_the_time_they_were_sent(body: Body) -> None:
    heard: list[tuple[frozenset[UUID], float]] = []
    body.heart._on_confirmed = lambda workers, at: heard.append((workers, at))
    gone, lives = body.add(), body.add()
    body.memory.retire([gone.id])
    body.clock.advance(BEAT)
    body.heart.step()
    assert heard == [(frozenset({lives.id}), 5.0)]


# -------------------------------------------------------------------------------------------------- the thread


def test_the_thread_beats_survives_errors_and_ends_with_close() -> None:
    store = MemoryStore(SystemClock())
    line = Line(store)
    drained = threading.Event()
    heart = HeartbeatThread(
        line.store,
        SystemClock(),
        beat=timedelta(milliseconds=50),
        expiry=timedelta(seconds=60),
        on_cancel=lambda request: None,
        on_drain=lambda id: drained.set(),
        on_lost=lambda id: None,
    )
    heart.start()
    try:
        worker = a_worker()
        heart.add(worker)
        eventually(lambda: line.calls.count("beat") >= 3)
        assert heart.healthy
        line.broken = lambda verb, given: RuntimeError("nobody thought of this")
        eventually(lambda: not heart.healthy)
        line.mend()
        eventually(lambda: heart.healthy)
        store.drain([worker.id])
        assert drained.wait(20)
    finally:
        heart.close()
    heart.close()
    assert "tidemill-heart" not in {thread.name for thread in threading.enumerate()}
    store.close()


def test_a_requested_heartbeat_does_not_wait_for_the_interval() -> None:
    store = MemoryStore(SystemClock())
    told = threading.Event()
    heart = HeartbeatThread(
        store,
        SystemClock(),
        beat=timedelta(seconds=200),
        expiry=timedelta(seconds=600),
        on_cancel=lambda request: told.set(),
        on_drain=lambda id: None,
        on_lost=lambda id: None,
    )
    heart.start()
    worker = a_worker()
    heart.add(worker)
    (id,) = enqueue(store)
    claim(store, worker.id)
    store.request_cancel([id], tenant=ALL_TENANTS, reason="enough")
    heart.beat_soon()
    assert told.wait(20)
    heart.close()
    store.close()


def test_the_heartbeat_can_be_closed_from_its_own_callback() -> None:
    store = MemoryStore(SystemClock())
    closed = threading.Event()

    def close(id: UUID) -> None:
        heart.close()
        closed.set()

    heart = HeartbeatThread(
        store,
        SystemClock(),
        beat=timedelta(milliseconds=20),
        expiry=timedelta(seconds=60),
        on_cancel=lambda request: None,
        on_drain=lambda id: None,
        on_lost=close,
    )
    heart.start()
    worker = Worker(new_id(), "gone")
    heart.add(worker)
    store.retire([worker.id])
    assert closed.wait(20)
    heart.close()
    store.close()
