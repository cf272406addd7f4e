"""Tests of the watch over running jobs while the store does not answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE, Harness, open_gate, opened

from tidemill.client.jobs.handle import Job as Handle
from tidemill.clock import SystemClock
from tidemill.domain.states import JobState
from tidemill.engine.runner.store_thread import StoreThread
from tidemill.engine.runner.watchdog import Fence
from tidemill.ids import new_id

SOON = PATIENCE / 2
"""Shorter than the 30 s after which a blocked call returns by itself."""


@pytest.fixture
def harness() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def a_job_claimed_ahead(harness: Harness, gate: threading.Event, timeout: timedelta | None) -> Handle[None]:
    """Enqueue many short jobs and then a long one, which a busy runner claims before it has a free slot."""

    @harness.app.task
    async def short() -> None: ...

    @harness.app.task(timeout=timeout, retry=None)
    async def long() -> None:
        await open_gate(gate)

    short.enqueue_many([{} for _ in range(300)])
    return long.enqueue()


def test_a_timeout_stops_a_job_while_the_store_does_not_answer(
    harness: Harness, gate: threading.Event
) -> None:
    job = a_job_claimed_ahead(harness, gate, timedelta(seconds=0.3))
    reached, _ = harness.line.hold_up("start", times=float("inf"))
    with harness.runner(concurrency=1):
        assert reached.wait(PATIENCE)
        harness.becomes(job, JobState.TIMED_OUT, within=SOON)


def test_the_fence_opens_while_the_store_does_not_answer(harness: Harness, gate: threading.Event) -> None:
    clock, lost = SystemClock(), threading.Event()
    fence = Fence(clock, new_id(), limit=3600.0, confirmed=clock.monotonic())
    fence.on_lost = lost.set
    a_job_claimed_ahead(harness, gate, None)
    reached, _ = harness.line.hold_up("start", times=float("inf"))
    with harness.runner(concurrency=1, fence=fence):
        assert reached.wait(PATIENCE)
        fence.until, fence._stall = float("-inf"), 0.0  # the lease ends now
        assert lost.wait(SOON)
        gate.set()


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
def test_no_job_begins_after_the_lease_has_lapsed(harness: Harness, kind: str) -> None:
    clock = SystemClock()
    fence = Fence(clock, new_id(), limit=3600.0, confirmed=clock.monotonic())
    ran: list[int] = []
    lapsed: list[int] = []

    def work(n: int) -> None:
        ran.append(n)
        # Once jobs are claimed ahead, the lease lapses, as if the process had been halted.
        if not lapsed and len(runner.holding()) > 5:
            lapsed.append(len(ran))
            fence.until = float("-inf")

    @harness.app.task
    async def coroutine(n: int) -> None:
        work(n)

    @harness.app.task
    def thread(n: int) -> None:
        work(n)

    with harness.runner(concurrency=1, threads=1, fence=fence) as runner:
        jobs = (coroutine if kind == "coroutine" else thread).enqueue_many([{"n": n} for n in range(1000)])
        eventually(lambda: lapsed and not runner.holding(), PATIENCE)
        assert len(ran) == lapsed[0]
        left = [harness.row(job) for job in jobs if harness.state(job) is not JobState.COMPLETED]
        assert {(row.state, row.attempt) for row in left} == {(JobState.PENDING, 0)}
        assert len(left) == 1000 - len(ran)
        fence.confirm(clock.monotonic())
        runner.wake()
        harness.ends(*jobs)
    assert sorted(ran) == list(range(1000))


def test_no_job_begins_in_a_child_process_after_the_lease_has_lapsed(
    harness: Harness, gate: threading.Event
) -> None:
    clock = SystemClock()
    fence = Fence(clock, new_id(), limit=3600.0, confirmed=clock.monotonic())

    @harness.app.task
    def work() -> None:
        gate.wait(PATIENCE)

    job = work.enqueue()
    with harness.runner(fence=fence) as runner:
        harness.becomes(job, JobState.RUNNING)
        (held,) = runner.holding()
        assert runner._begin_alone(held)
        fence.until = float("-inf")
        assert not runner._begin_alone(held)
        fence.confirm(clock.monotonic())
        gate.set()
        harness.ends(job)


def test_a_background_thread_takes_one_call_at_a_time() -> None:
    aside, entered, leave = StoreThread("test-aside"), threading.Event(), threading.Event()
    done: list[str] = []

    def first() -> None:
        entered.set()
        leave.wait(PATIENCE)
        done.append("first")

    aside.start()
    try:
        assert aside.offer(first)
        assert entered.wait(PATIENCE)
        assert not aside.offer(lambda: done.append("second"))
    finally:
        leave.set()
        aside.close()
    assert done == ["first"]
    assert not aside.offer(lambda: done.append("third"))


def test_a_background_thread_survives_a_call_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    aside, done = StoreThread("test-aside"), threading.Event()

    def fails() -> None:
        raise ValueError("on purpose")

    aside.start()
    try:
        assert aside.offer(fails)
        while not aside.offer(done.set):
            done.wait(0.01)
        assert done.wait(PATIENCE)
    finally:
        aside.close()
    assert "unexpected error in a background store call" in caplog.text
