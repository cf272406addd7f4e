"""Tests of workers that stop, drain or lose their lease."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, open_gate, opened

from tidemill import Context
from tidemill.domain.cluster import WorkerState
from tidemill.domain.liveness import margin
from tidemill.domain.states import ExecutionState, JobState

S, E = JobState, ExecutionState
LIVELY = {"beat": 0.2, "expiry": 2.0}


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness(place: Place, tmp_path: Path) -> Iterator[Harness]:
    with place(tmp_path) as url, opened(url) as harness:
        yield harness


@pytest.fixture
def small() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """An event that is set at the latest when the test ends, so that no thread waits forever."""
    gate = threading.Event()
    yield gate
    gate.set()


def handed_back(harness: Harness, job: Any) -> None:
    """Check that the job is pending, as if it had never been claimed."""
    row = harness.row(job)
    assert (row.state, row.attempt, row.crashes, row.worker) == (S.PENDING, 0, 0, None)
    assert {execution.state for execution in harness.executions(job)} <= {E.RELEASED}


# ------------------------------------------------------------------------------------------------------- stopping


def test_jobs_that_end_within_the_grace_period_finish_and_no_more_are_claimed(harness: Harness) -> None:
    begun: list[str] = []

    @harness.app.task
    async def on_loop() -> str:
        begun.append("loop")
        await asyncio.sleep(0.3)
        return "done"

    @harness.app.task
    def in_thread() -> str:
        begun.append("thread")
        threading.Event().wait(0.3)
        return "done"

    worker = harness.worker(grace=30)
    with worker:
        jobs = [on_loop.enqueue(), in_thread.enqueue()]
        eventually(lambda: len(begun) == 2)
        me = worker.id
    later = on_loop.enqueue()
    assert [harness.row(job).result for job in jobs] == ['"done"', '"done"']
    assert harness.state(later) is S.PENDING
    assert [known.state for known in harness.line.real.workers() if known.id == me] == [WorkerState.STOPPED]


def test_jobs_that_exceed_the_grace_period_are_released_without_an_attempt(
    harness: Harness, gate: threading.Event
) -> None:
    told: Counter[str] = Counter()
    begun: list[str] = []
    first = True

    @harness.app.task
    async def on_loop() -> str:
        if first:
            begun.append("loop")
            try:
                await asyncio.sleep(3600)
            finally:
                told["loop"] += 1
        return "second"

    @harness.app.task
    def polite(ctx: Context) -> str:
        begun.append("polite")
        while first:
            try:
                ctx.check()
            except BaseException:
                told["polite"] += 1
                raise
            threading.Event().wait(0.01)
        return "second"

    @harness.app.task
    def stubborn() -> str:
        begun.append("stubborn")
        if first:
            gate.wait(PATIENCE)
            told["stubborn"] += 1
        return "second"

    tasks = (on_loop, polite, stubborn)
    with harness.worker(grace=0.1):
        jobs = [task.enqueue() for task in tasks]
        eventually(lambda: len(begun) == 3)
        began = harness.clock.monotonic()
    assert harness.clock.monotonic() - began < 10.0
    for job in jobs:
        handed_back(harness, job)
    assert told == {"loop": 1, "polite": 1}
    first = False
    gate.set()
    eventually(lambda: told["stubborn"] == 1)  # its end comes too late and has no effect
    for job in jobs:
        handed_back(harness, job)
    with harness.worker():
        assert [job.result(PATIENCE) for job in jobs] == ["second"] * 3
    assert [harness.row(job).attempt for job in jobs] == [1, 1, 1]


def test_buffered_jobs_are_released_and_never_start(harness: Harness, gate: threading.Event) -> None:
    begun: list[int] = []

    @harness.app.task
    async def work(number: int) -> None:
        begun.append(number)
        if number >= 0:
            await open_gate(gate)

    quick = [work.enqueue(-1) for _ in range(10)]
    worker = harness.worker(concurrency=2, buffer=20, grace=20)
    with worker:
        harness.ends(*quick)
        jobs = work.enqueue_many([{"number": number} for number in range(8)])
        eventually(lambda: Counter(map(harness.state, jobs)) == {S.RUNNING: 2, S.CLAIMED: 6})
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        eventually(lambda: Counter(map(harness.state, jobs))[S.PENDING] == 6)
        gate.set()
        stopping.join(PATIENCE)
    running = [job for job in jobs if harness.state(job) is S.COMPLETED]
    assert len(running) == 2
    for job in set(jobs) - set(running):
        handed_back(harness, job)
    assert len([number for number in begun if number >= 0]) == 2


@pytest.mark.parametrize("grace", [0, 20])
def test_jobs_from_a_claim_in_flight_at_the_stop_are_released(small: Harness, grace: float) -> None:
    ran: list[int] = []

    @small.app.task
    async def work(number: int) -> None:
        ran.append(number)

    reached, go_on = small.line.hold_up("claim", "step", late=True)
    with small.runner(poll=0.1) as runner:
        jobs = work.enqueue_many([{"number": number} for number in range(5)])
        assert reached.wait(PATIENCE)
        stopping = threading.Thread(target=runner.stop, args=(grace,))
        stopping.start()
        eventually(lambda: runner._stopping)
        go_on.set()
        stopping.join(PATIENCE)
        assert not stopping.is_alive()
    assert ran == []
    for job in jobs:
        handed_back(small, job)


@pytest.mark.long
def test_a_stop_during_an_outage_ends(small: Harness, gate: threading.Event) -> None:
    @small.app.task
    async def work() -> str:
        await open_gate(gate)
        return "done"

    worker = small.worker(grace=0.5)
    with worker:
        job = work.enqueue()
        small.becomes(job, S.RUNNING)
        small.line.cut()
        gate.set()
        began = small.clock.monotonic()
        worker.stop()
        assert small.clock.monotonic() - began < 12.0
        small.line.mend()
    assert small.state(job) is S.RUNNING  # until the lease expires


def test_stopping_twice_and_concurrently_is_harmless(small: Harness) -> None:
    begun = threading.Event()

    @small.app.task
    async def forever() -> None:
        begun.set()
        await asyncio.sleep(3600)

    worker = small.worker(grace=20)
    with worker:
        job = forever.enqueue()
        assert begun.wait(PATIENCE)
        patient = threading.Thread(target=worker.stop)
        patient.start()
        eventually(lambda: worker._over)
        worker.stop()
        patient.join(0.1)
        assert patient.is_alive()
        job.cancel("we cannot wait")  # the heartbeat continues until the end, so the cancel still arrives
        patient.join(PATIENCE)
        assert not patient.is_alive()
    assert small.state(job) is S.CANCELLED


def test_a_second_stop_with_less_grace_overtakes_the_first(small: Harness) -> None:
    @small.app.task
    async def forever() -> None:
        await asyncio.sleep(3600)

    with small.runner() as runner:
        job = forever.enqueue()
        small.becomes(job, S.RUNNING)
        patient = threading.Thread(target=runner.stop, args=(PATIENCE,))
        patient.start()
        eventually(lambda: runner._stopping)
        runner.stop(0)
        patient.join(PATIENCE / 2)
        assert not patient.is_alive()
    handed_back(small, job)


def test_a_drained_worker_finishes_its_jobs_and_claims_no_more(
    harness: Harness, gate: threading.Event
) -> None:
    @harness.app.task
    async def work() -> str:
        await open_gate(gate)
        return "done"

    with harness.worker(**LIVELY) as worker:
        held = work.enqueue()
        harness.becomes(held, S.RUNNING)
        assert worker.id is not None
        harness.line.real.drain([worker.id])
        eventually(lambda: worker._runner is not None and not worker._runner._exchange.claiming)
        later = work.enqueue()
        gate.set()
        assert held.result(PATIENCE) == "done"
        with harness.another_app().worker(children=0, queues="nothing"):
            assert harness.state(later) is S.PENDING


# --------------------------------------------------------------------------------------------------- lost leases


def test_a_worker_declared_dead_stops_its_jobs_and_registers_again(
    harness: Harness, gate: threading.Event
) -> None:
    told: Counter[str] = Counter()
    ended = threading.Event()

    @harness.app.task
    async def on_loop(ctx: Context) -> str:
        if told["loop"]:
            return "again"
        told["begun"] += 1
        try:
            await asyncio.sleep(3600)
        finally:
            ctx.log("I am being stopped")
            told["loop"] += 1
        return "never"

    @harness.app.task
    def stubborn(ctx: Context) -> str:
        if told["begun"] >= 2:
            return "again"
        told["begun"] += 1
        gate.wait(PATIENCE)
        ctx.log("too late")
        ended.set()
        return "too late"

    harness.line.refuse_busy("orphans", times=1e9)  # no other worker reclaims the jobs
    with harness.worker(**LIVELY) as worker:
        first = worker.id
        assert first is not None
        jobs = [on_loop.enqueue(), stubborn.enqueue()]
        eventually(lambda: told["begun"] == 2)
        harness.line.real.retire([first])
        eventually(lambda: worker.id not in (None, first))
        eventually(lambda: told["loop"] == 1)
        gate.set()
        assert ended.wait(PATIENCE)
        assert [job.result(PATIENCE) for job in jobs] == ["again", "again"]  # released, and not charged
        second = worker.id
    for job in jobs:
        row = harness.row(job)
        assert (row.attempt, row.crashes, row.worker) == (1, 0, second)
        assert [execution.state for execution in harness.executions(job)] == [E.RELEASED, E.SUCCEEDED]
        assert harness.lines(job) == []


@pytest.mark.long
def test_a_disconnected_worker_stops_its_jobs_before_they_can_be_reclaimed(small: Harness) -> None:
    stopped: list[float] = []

    @small.app.task
    async def forever() -> str:
        if stopped:
            return "again"
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.append(small.clock.monotonic())
        return "never"

    with small.worker(**LIVELY) as worker:
        first = worker.id
        job = forever.enqueue()
        small.becomes(job, S.RUNNING)
        small.line.cut()
        began = small.clock.monotonic()
        eventually(lambda: stopped)
        # The jobs cannot be reclaimed before that.
        assert stopped[0] - began < 2.0 + margin(timedelta(seconds=2))
        small.line.mend()
        assert job.result(PATIENCE) == "again"
        assert worker.id != first
    assert small.row(job).crashes == 0


def test_a_short_disconnection_has_no_effect_on_jobs(small: Harness, gate: threading.Event) -> None:
    @small.app.task
    async def work() -> str:
        await open_gate(gate)
        return "done"

    with small.worker(beat=0.2, expiry=30) as worker:
        first = worker.id
        job = work.enqueue()
        small.becomes(job, S.RUNNING)
        failed = small.line.calls_of("beat")
        small.line.cut()
        eventually(lambda: small.line.calls_of("beat") > failed + 2)
        gate.set()
        small.line.mend()
        assert job.result(PATIENCE) == "done"
        assert worker.id == first
    assert small.row(job).crashes == 0


def test_a_worker_stopped_while_it_registers_again_stops(small: Harness) -> None:
    @small.app.task
    async def forever() -> None:
        await asyncio.sleep(3600)

    with small.worker(**LIVELY) as worker:
        small.becomes(forever.enqueue(), S.RUNNING)
        assert worker.id is not None
        small.line.refuse("register", times=1e9)
        small.line.real.retire([worker.id])
        eventually(lambda: small.line.calls_of("register") > 1)
        began = small.clock.monotonic()
    assert small.clock.monotonic() - began < 10.0
