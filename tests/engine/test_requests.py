"""Tests of requests to running workers: pause, resume and scale, and of the figures that workers report."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, opened
from tests.engine.worker_kit import World, a_world, alive, until

from tidemill.clock import ManualClock
from tidemill.domain.cluster import Worker, WorkerState
from tidemill.domain.states import JobState
from tidemill.domain.worker_reports import ProcessFigures, SlotCounts
from tidemill.engine.process_figures import ProcessMeter
from tidemill.errors import BadSettings

S = JobState
LIVELY = {"beat": 0.1, "expiry": 3.0}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as world:
        yield world


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness(place: Place, tmp_path: Path) -> Iterator[Harness]:
    with place(tmp_path) as url, opened(url) as harness:
        yield harness


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def me(harness: Harness) -> Worker:
    (row,) = [row for row in harness.line.real.workers() if row.state is WorkerState.ACTIVE]
    return row


# Embedded workers --------------------------------------------------------------------------------------------------------


def test_a_paused_worker_finishes_its_jobs_and_claims_again_once_it_is_resumed(
    harness: Harness, gate: threading.Event
) -> None:
    @harness.app.task
    def work() -> str:
        gate.wait(PATIENCE)
        return "done"

    with harness.worker(**LIVELY):
        held = work.enqueue()
        harness.becomes(held, S.RUNNING)
        assert harness.app.control.pause_worker(me(harness).id)
        eventually(lambda: not harness.runners()[0]._exchange.claiming)
        later = work.enqueue()
        gate.set()
        assert held.result(PATIENCE) == "done"
        assert harness.state(later) is S.PENDING
        assert harness.app.control.resume_worker(me(harness).id)
        assert later.result(PATIENCE) == "done"


def test_a_paused_worker_that_drains_does_not_claim_when_it_is_resumed(harness: Harness) -> None:
    with harness.runner() as runner:
        runner.pause()
        runner.drain()
        runner.resume()
        assert not runner._exchange.claiming


def test_a_worker_that_registers_again_stays_paused_and_keeps_its_slots(harness: Harness) -> None:
    with harness.worker(**LIVELY):
        first = me(harness).id
        eventually(lambda: me(harness).report is not None)
        harness.app.control.pause_worker(first)
        harness.app.control.scale_worker(first, concurrency=7)
        eventually(lambda: not harness.runners()[0]._exchange.claiming and me(harness).concurrency == 17)
        harness.line.real.declare_gone([(first, me(harness).beats)])
        eventually(
            lambda: any(
                row.state is WorkerState.ACTIVE and row.id != first for row in harness.line.real.workers()
            )
        )
        eventually(lambda: me(harness).report is not None)
        assert (me(harness).paused, me(harness).concurrency) == (True, 17)
        assert not harness.runners()[-1]._exchange.claiming


def test_more_slots_run_more_jobs_at_once_and_fewer_slots_fewer(harness: Harness) -> None:
    running, most = 0, 0
    go = asyncio.Event()

    @harness.app.task
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1

    with harness.runner(concurrency=1, threads=1) as runner:
        jobs = work.enqueue_many([{}] * 4)
        eventually(lambda: running == 1)
        runner.resize(SlotCounts(3, 1, 0))
        eventually(lambda: running == 3)
        runner.resize(SlotCounts(2, 1, 0))
        harness.runners()
        runner._loop.loop.call_soon_threadsafe(go.set)
        harness.ends(*jobs)
        assert most == 3
        assert runner.slots == SlotCounts(2, 1, 0)


def test_threads_are_added_and_removed(harness: Harness, gate: threading.Event) -> None:
    running: list[int] = []

    @harness.app.task
    def work() -> None:
        running.append(1)
        gate.wait(PATIENCE)

    with harness.runner(concurrency=1, threads=1) as runner:
        jobs = work.enqueue_many([{}] * 3)
        eventually(lambda: len(running) == 1)
        runner.resize(SlotCounts(1, 3, 0))
        eventually(lambda: len(running) == 3)
        gate.set()
        harness.ends(*jobs)
        runner.resize(SlotCounts(1, 1, 0))
        eventually(lambda: runner._threads._threads == 1)
        harness.ends(*work.enqueue_many([{}] * 5))


def test_an_embedded_worker_has_one_process(harness: Harness) -> None:
    with harness.worker(**LIVELY):
        eventually(lambda: me(harness).report is not None)
        with pytest.raises(BadSettings, match="inside another program"):
            harness.app.control.scale_worker(me(harness).id, processes=2)
        with pytest.raises(BadSettings, match="started without children"):
            harness.app.control.scale_worker(me(harness).id, children=2)
        for number in (0, 10_001):
            with pytest.raises(BadSettings, match="give 1 to 10,000"):
                harness.app.control.scale_worker(me(harness).id, concurrency=number)
        report = me(harness).report
        assert report is not None
        assert report.supervisor is None
        assert (report.figures.memory or 0) > 1_000_000


def test_requests_are_audited(harness: Harness) -> None:
    with harness.worker(**LIVELY):
        id = me(harness).id
        eventually(lambda: me(harness).report is not None)
        control = harness.app.control
        assert [control.pause_worker(id), control.pause_worker(id)] == [True, False]
        assert [control.resume_worker(id), control.resume_worker(id)] == [True, False]
        assert control.scale_worker(id, threads=3).slots.threads == 3
        eventually(lambda: me(harness).concurrency == 103)
        assert control.scale_worker(id, threads=3).slots.threads == 3
        rows = [row.entry for row in harness.app.audit.list(tenant="*", subject=f"worker:{id}")]
        assert sorted(row.action for row in rows) == ["worker.paused", "worker.resumed", "worker.scaled"]


# Figures -----------------------------------------------------------------------------------------------------------------


def test_cpu_is_measured_between_two_readings_of_the_same_process() -> None:
    clock, seconds = ManualClock(), {1: 5.0}
    meter = ProcessMeter(clock, memory_of=lambda _: 4096, seconds_of=seconds.get)
    assert meter.measure(1) == ProcessFigures(4096, None)
    clock.advance(timedelta(seconds=10))
    seconds[1] = 7.5
    assert meter.measure(1) == ProcessFigures(4096, 0.25)
    clock.advance(timedelta(milliseconds=10))
    assert meter.measure(1) == ProcessFigures(4096, 0.25)
    seconds[1] = 1.0
    assert meter.measure(1) == ProcessFigures(4096, None)


def test_figures_that_the_system_does_not_report_are_absent() -> None:
    meter = ProcessMeter(ManualClock(), memory_of=lambda _: None, seconds_of=lambda _: None)
    assert meter.measure(os.getpid()) == ProcessFigures(None, None)


# Supervised workers ------------------------------------------------------------------------------------------------------


def rows(world: World) -> list[Worker]:
    return [row for row in world.app.store.workers() if row.state is not WorkerState.STOPPED]


@pytest.mark.long
def test_a_supervisor_starts_more_runners_and_drains_surplus_ones(world: World) -> None:
    worker = world.supervised(beat=0.2, expiry=1.2).ready()
    until(lambda: all(row.report for row in rows(world)) and rows(world), "it has reported")
    (first,) = rows(world)
    assert first.report is not None
    assert first.report.supervisor is not None
    assert first.report.supervisor.pid == worker.process.pid
    assert (first.report.supervisor.figures.memory or 0) > 1_000_000
    world.app.control.scale_worker(first.id, processes=3, concurrency=5)
    worker.ready(3)
    until(lambda: sorted(row.place for row in rows(world)) == [1, 2, 3], "three work")
    until(lambda: {row.concurrency for row in rows(world)} == {17}, "all have the new slots")
    job = world.tasks.wait.enqueue(file=world.file("job"))
    pid = until(lambda: world.notes("job"), "it runs")[0]
    world.app.control.scale_worker(first.id, processes=1)
    until(lambda: len(worker.runners()) == (1 if pid == first.pid else 2), "idle ones have gone")
    world.let_go("job")
    assert job.result(timeout=30) == pid
    until(lambda: worker.runners() == [first.pid], "one is left")
    assert alive(first.pid)


@pytest.mark.long
def test_the_successor_of_a_paused_runner_is_paused_until_it_is_resumed(world: World) -> None:
    worker = world.supervised(beat=0.2, expiry=1.2).ready()
    (first,) = rows(world)
    world.app.control.pause_worker(first.id)
    until(lambda: "is paused at an operator's request" in worker.log, "it has heard it")
    os.kill(first.pid, 9)
    worker.ready(2)
    job = world.tasks.add.enqueue(left=1, right=1)
    second: UUID = until(
        lambda: [row.id for row in rows(world) if row.id != first.id and row.beats > 2], "it beats"
    )[0]
    assert world.row(job).state is JobState.PENDING
    world.app.control.resume_worker(second)
    assert job.result(timeout=30) == 2
