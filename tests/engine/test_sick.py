"""Tests of the replacement of runners that are alive but do no work."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.worker_kit import World, a_world, alive, until

from tidemill.clock import SystemClock
from tidemill.domain.states import JobState

pytestmark = pytest.mark.long

QUICK: dict[str, int] = {"patience": 1, "silence": 16}
clock = SystemClock()


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[World]:
    with a_world(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as world:
        yield world


@pytest.fixture
def on_postgres(migrated_postgres_url: str, tmp_path: Path) -> Iterator[World]:
    with a_world(migrated_postgres_url, tmp_path) as world:
        yield world


@pytest.fixture(params=["sqlite", "postgres"])
def world(request: pytest.FixtureRequest) -> World:
    world: World = request.getfixturevalue(f"on_{request.param}")
    return world


def replaced(world: World, first: int) -> None:
    worker = world.workers[-1]
    until(lambda: "is unhealthy and is replaced" in worker.log, "the supervisor has noticed", 60)
    until(lambda: not alive(first), "the sick runner is gone", 10)
    worker.ready(2)


def test_a_job_that_holds_the_gil_past_its_timeout_is_ended_and_others_rerun(
    world: World,
) -> None:
    worker = world.supervised(**QUICK).ready()
    neighbours = [world.tasks.doze.enqueue(file=world.file("doze"), seconds=3) for _ in range(20)]
    until(lambda: len(world.notes("doze")) == 20, "they run")
    job = world.tasks.hold_the_interpreter.enqueue(file=world.file("job"), seconds=100)
    first = until(lambda: world.notes("job"), "it runs")[0]
    began = clock.monotonic()
    replaced(world, first)
    assert clock.monotonic() - began < 2 + 1 + 12  # timeout, patience, and a margin for a busy machine
    assert all(neighbour.result(timeout=30) != first for neighbour in neighbours), worker.log
    assert {(world.row(one).attempt, world.row(one).crashes) for one in neighbours} == {(1, 0)}
    assert world.row(job).state is JobState.TIMED_OUT
    assert (world.row(job).attempt, world.row(job).crashes) == (1, 0)


def test_a_job_that_blocks_the_loop_moves_to_a_process_and_others_rerun(world: World) -> None:
    world.supervised(**QUICK).ready()
    neighbour = world.tasks.doze.enqueue(file=world.file("doze"), seconds=2)
    until(lambda: world.notes("doze"), "it runs")
    job = world.tasks.block_the_loop.enqueue(file=world.file("job"), seconds=15)
    first = until(lambda: world.notes("job"), "it runs")[0]
    replaced(world, first)
    assert neighbour.result(timeout=30) != first
    assert job.result(timeout=60) != first
    assert (world.row(neighbour).attempt, world.row(neighbour).crashes) == (1, 0)
    assert (world.row(job).attempt, world.row(job).crashes) == (1, 1)


def test_a_runner_that_cannot_open_files_is_replaced(world: World) -> None:
    world.supervised(**QUICK).ready()
    job = world.tasks.exhaust_descriptors.enqueue(file=world.file("job"))
    first = until(lambda: world.notes("job"), "it runs")[0]
    replaced(world, first)
    until(lambda: world.row(job).state is JobState.COMPLETED, "the job is done by another", 60)


def test_a_runner_whose_descriptors_were_closed_by_a_job_is_replaced(world: World) -> None:
    worker = world.supervised(**QUICK).ready()
    job = world.tasks.close_descriptors.enqueue(file=world.file("job"))
    first = until(lambda: world.notes("job"), "it runs")[0]
    until(lambda: not alive(first), "the runner is gone", 30)
    worker.ready(2)
    until(lambda: world.row(job).state is JobState.COMPLETED, "the job is done by another", 60)


def test_a_runner_that_is_silent_for_too_long_is_replaced(world: World) -> None:
    world.supervised(patience=1, silence=4).ready()
    job = world.tasks.wait.enqueue(file=world.file("job"))
    first = until(lambda: world.notes("job"), "it runs")[0]
    os.kill(first, signal.SIGSTOP)
    replaced(world, first)
    world.let_go("job")
    assert job.result(timeout=60) != first


def test_the_worker_is_not_ready_while_its_runner_is_silent(world: World) -> None:
    worker = world.worker("--processes", "1", "--health-port", "0").ready()
    until(lambda: worker.ask("/readyz")[0] == 200, "it is ready")
    (runner,) = worker.runners()
    os.kill(runner, signal.SIGSTOP)
    began = clock.monotonic()
    until(lambda: worker.ask("/readyz")[0] == 503, "it is not ready", 15)
    assert clock.monotonic() - began < 12
    assert worker.ask("/livez")[0] == 200
    assert "sends no messages" in worker.ask("/readyz")[1]["reasons"][0]
    os.kill(runner, signal.SIGCONT)
    until(lambda: worker.ask("/readyz")[0] == 200, "it is ready again", 15)
