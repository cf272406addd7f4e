"""Tests of worker processes: crashes, stops and reloads lose no job."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.engine.worker_kit import WorkerProcess, World, a_world, alive, until
from tests.servers.postgres import running_postgres

from tidemill.clock import SystemClock
from tidemill.domain.cluster import WorkerState, holder_of
from tidemill.domain.states import JobState
from tidemill.stores.open import open_store

pytestmark = pytest.mark.long


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as world:
        yield world


@pytest.fixture
def on_postgres(migrated_postgres_url: str, tmp_path: Path) -> Iterator[World]:
    with a_world(migrated_postgres_url, tmp_path) as world:
        yield world


@pytest.fixture(params=["sqlite", "postgres"])
def anywhere(request: pytest.FixtureRequest) -> World:
    world: World = request.getfixturevalue("world" if request.param == "sqlite" else "on_postgres")
    return world


def said(worker: WorkerProcess, word: str) -> bool:
    return word in worker.log


# Running -----------------------------------------------------------------------------------------------------------------


def test_jobs_run_in_separate_processes(anywhere: World) -> None:
    worker = anywhere.worker("--processes", "2").ready(2)
    jobs = anywhere.tasks.add.enqueue_many([{"left": n, "right": 1} for n in range(50)])
    assert [job.result(timeout=30) for job in jobs] == list(range(1, 51))
    rows = [row for row in anywhere.app.store.workers() if row.state is WorkerState.ACTIVE]
    assert {row.pid for row in rows} == set(worker.runners())
    assert len({row.id for row in rows}) == 2
    assert all("add" in row.tasks and row.node and row.concurrency == 112 for row in rows)
    worker.signal(signal.SIGTERM)
    assert worker.exit_code() == 0
    assert worker.process.pid not in {row.pid for row in rows}


def test_a_cancelled_job_is_stopped_soon(world: World) -> None:
    world.worker("--processes", "1").ready()
    job = world.tasks.wait.enqueue(file=world.file("job"))
    until(lambda: world.notes("job"), "it runs")
    clock = SystemClock()
    asked = clock.monotonic()
    job.cancel("enough")
    until(lambda: world.row(job).state is JobState.CANCELLED, "it is cancelled")
    assert clock.monotonic() - asked < 4  # the next regular heartbeat could be five seconds away


# Crashes -----------------------------------------------------------------------------------------------------------------


def test_a_killed_runner_is_replaced_and_its_job_runs_again(anywhere: World) -> None:
    worker = anywhere.worker("--processes", "1").ready()
    job = anywhere.tasks.wait.enqueue(file=anywhere.file("job"))
    first = until(lambda: anywhere.notes("job"), "it runs")[0]
    os.kill(first, signal.SIGKILL)
    clock = SystemClock()
    killed = clock.monotonic()
    until(lambda: anywhere.row(job).crashes == 1, "it is reclaimed")
    assert clock.monotonic() - killed < 2
    until(lambda: worker.runners() not in ([], [first]), "another was started")
    assert clock.monotonic() - killed < 2.5
    anywhere.let_go("job")
    assert job.result(timeout=30) != first
    assert anywhere.row(job).attempt == 2
    assert "was killed by SIGKILL" in worker.log


def test_workers_share_the_duties_by_a_lease_for_each(anywhere: World) -> None:
    def held() -> dict[str, str]:
        now, workers = anywhere.app.store.now(), anywhere.app.store.workers()
        leases = [lease for lease in anywhere.app.store.leases() if lease.name.startswith("duties:")]
        holders = {lease.name: holder_of(lease, workers) for lease in leases if lease.held(now)}
        return {name: holder.name for name, holder in holders.items() if holder and holder.name}

    first = anywhere.worker("--processes", "1", "--lease-per-duty").ready()
    until(lambda: "duties:fire" in held() and "duties:promote" in held(), "it leads every duty")
    names = set(held())
    second = anywhere.worker("--processes", "1", "--lease-per-duty").ready()
    shared = until(
        lambda: (now := held()).keys() == names and len(set(now.values())) == 2 and now, "they share them", 90
    )
    counts = sorted(list(shared.values()).count(name) for name in set(shared.values()))
    assert counts[0] >= 2
    os.kill(first.process.pid, signal.SIGKILL)
    until(lambda: held().keys() == names and len(set(held().values())) == 1, "the other one leads all", 30)
    job = anywhere.tasks.wait.enqueue(file=anywhere.file("job"))
    until(lambda: anywhere.notes("job"), "it runs")
    anywhere.let_go("job")
    job.result(timeout=30)
    second.signal(signal.SIGTERM)
    assert second.exit_code() == 0
    assert not held()


def test_processes_of_a_killed_runner_die_with_it(world: World) -> None:
    world.worker("--processes", "1").ready()
    world.tasks.start_a_program.enqueue(file=world.file("job"))
    program = until(lambda: world.notes("job"), "it runs")[0]
    runner = world.workers[0].runners()[0]
    assert alive(program)
    os.kill(runner, signal.SIGKILL)
    until(lambda: not alive(program), "the program is gone", 5)
    world.let_go("job")


def test_runners_do_not_outlive_their_supervisor(world: World) -> None:
    worker = world.worker("--processes", "2").ready(2)
    world.tasks.stubborn.enqueue(file=world.file("job"))
    until(lambda: world.notes("job"), "it runs")
    runners = worker.runners()
    worker.signal(signal.SIGKILL)
    until(lambda: not any(map(alive, runners)), "the runners are gone", 2)


def test_processes_of_jobs_do_not_outlive_the_supervisor(world: World) -> None:
    worker = world.worker("--processes", "1").ready()
    world.tasks.start_a_program.enqueue(file=world.file("job"))
    program = until(lambda: world.notes("job"), "it runs")[0]
    worker.signal(signal.SIGKILL)
    until(lambda: not alive(program), "the program is gone", 2)


@pytest.mark.long
def test_a_job_that_kills_its_process_is_dead_lettered_and_no_neighbour_is(world: World) -> None:
    world.worker("--processes", "1", "--threads", "10").ready()
    neighbours = [world.tasks.wait_in_thread.enqueue(file=world.file("neighbours")) for _ in range(5)]
    until(lambda: len(world.notes("neighbours")) == 5, "they run")
    poison = world.tasks.poison.enqueue(file=world.file("poison"))
    until(lambda: world.row(poison).state is JobState.DEAD_LETTERED, "it is given up", 120)
    world.let_go("neighbours")
    assert "crash_loop" in (world.row(poison).reason or "")
    # It runs once next to other jobs, which is not charged, and three times alone.
    assert len(world.notes("poison")) == 4
    assert all(job.result(timeout=30) for job in neighbours)
    assert {(world.row(job).attempt, world.row(job).crashes) for job in neighbours} == {(1, 1)}


def test_a_worker_suspended_past_its_lease_drops_its_jobs_and_starts_over(world: World) -> None:
    settings: dict[str, Any] = {"beat": 0.2, "expiry": 1.2, "lease_beat": 0.2, "lease_expiry": 1.0}
    worker = world.supervised(**settings).ready()
    job = world.tasks.wait.enqueue(file=world.file("job"))
    first = until(lambda: world.notes("job"), "it runs")[0]
    world.supervised(**settings).ready()  # observes the first worker's heartbeats
    worker.signal(signal.SIGSTOP)
    os.kill(first, signal.SIGSTOP)
    until(lambda: len(world.notes("job")) == 2, "the second worker runs the job")
    worker.signal(signal.SIGCONT)
    os.kill(first, signal.SIGCONT)
    until(lambda: not alive(first), "the runner was ended")
    world.let_go("job")
    assert job.result(timeout=30) == world.notes("job")[1] != first
    until(lambda: "lost its lease and is replaced" in worker.log, "the first worker says why")
    again = world.tasks.wait.enqueue(file=world.file("again"))
    world.let_go("again")
    assert again.result(timeout=30)


@pytest.mark.long
def test_a_silent_runner_is_not_declared_dead(world: World) -> None:
    worker = world.supervised(beat=0.2, expiry=1.2, lease_beat=0.2, lease_expiry=1.0).ready()
    job = world.tasks.wait.enqueue(file=world.file("job"))
    first = until(lambda: world.notes("job"), "it runs")[0]
    os.kill(first, signal.SIGSTOP)
    row = world.app.store.workers()[0]
    until(lambda: world.app.store.workers()[0].beats > row.beats + 12, "two leases have passed")
    os.kill(first, signal.SIGCONT)
    world.let_go("job")
    assert job.result(timeout=30) == first
    assert world.row(job).attempt == 1
    assert worker.runners() == [first]


# Stopping ----------------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("task", ["wait", "wait_in_thread", "stubborn"])
def test_a_stop_releases_unfinished_jobs_and_charges_nothing(anywhere: World, task: str) -> None:
    worker = anywhere.worker("--processes", "1", "--grace", "0.3").ready()
    job = getattr(anywhere.tasks, task).enqueue(file=anywhere.file("job"))
    until(lambda: anywhere.notes("job"), "it runs")
    worker.signal(signal.SIGTERM)
    assert worker.exit_code(0.3 + 5) == 0
    row = anywhere.row(job)
    assert (row.state, row.attempt, row.crashes) == (JobState.PENDING, 0, 0), worker.log
    assert [row for row in anywhere.app.store.workers() if row.state is not WorkerState.STOPPED] == []


def test_a_stop_lets_running_jobs_finish_and_claims_no_more(world: World) -> None:
    worker = world.worker("--processes", "1", "--threads", "1").ready()
    job = world.tasks.wait_in_thread.enqueue(file=world.file("job"))
    until(lambda: world.notes("job"), "it runs")
    worker.signal(signal.SIGTERM)
    until(lambda: "claims nothing more" in worker.log, "the runner was told")
    later = world.tasks.add.enqueue(left=1, right=1)
    world.let_go("job")
    assert worker.exit_code() == 0
    assert world.row(job).state is JobState.COMPLETED
    assert (world.row(later).state, world.row(later).attempt) == (JobState.PENDING, 0)


def test_a_second_signal_skips_the_grace_period(world: World) -> None:
    worker = world.worker("--processes", "1", "--grace", "600").ready()
    job = world.tasks.wait_in_thread.enqueue(file=world.file("job"))
    until(lambda: world.notes("job"), "it runs")
    worker.signal(signal.SIGINT)
    until(lambda: "SIGINT: stopping" in worker.log, "the first was heard")
    worker.signal(signal.SIGINT)
    assert worker.exit_code(10) == 0
    assert (world.row(job).state, world.row(job).attempt) == (JobState.PENDING, 0)


def test_a_third_signal_kills_and_still_releases_the_jobs(world: World) -> None:
    worker = world.worker("--processes", "1", "--grace", "600").ready()
    job = world.tasks.stubborn.enqueue(file=world.file("job"))
    runner = until(lambda: world.notes("job"), "it runs")[0]
    for word in ("stopping,", "without grace", "killed"):
        worker.signal(signal.SIGTERM)
        until(partial(said, worker, word), f"the signal was heard: {word}")
    assert worker.exit_code(5) == 1
    assert not alive(runner)
    assert (world.row(job).state, world.row(job).crashes) == (JobState.PENDING, 1)


def test_ctrl_c_in_a_terminal_reaches_all_processes_and_stops_cleanly(world: World) -> None:
    worker = world.worker("--processes", "2", "--grace", "0.1").ready(2)
    job = world.tasks.wait.enqueue(file=world.file("job"))
    until(lambda: world.notes("job"), "it runs")
    os.killpg(worker.pid, signal.SIGINT)
    for runner in worker.runners():
        os.kill(runner, signal.SIGINT)
        os.kill(runner, signal.SIGTERM)
    assert worker.exit_code(10) == 0
    assert (world.row(job).state, world.row(job).attempt) == (JobState.PENDING, 0)


def test_a_signal_during_the_start_stops_the_worker(world: World) -> None:
    worker = world.worker("--processes", "2")
    until(worker.runners, "runners are being started")
    worker.signal(signal.SIGTERM)
    assert worker.exit_code(10) == 0


@pytest.mark.long
def test_a_stop_during_a_database_outage_keeps_its_time_limit(tmp_path: Path) -> None:
    with running_postgres() as server:
        store = open_store(server.url())
        store.migrate()
        store.close()
        with a_world(server.url(), tmp_path) as world:
            worker = world.worker("--processes", "1", "--grace", "1").ready()
            world.tasks.stubborn.enqueue(file=world.file("job"))
            until(lambda: world.notes("job"), "it runs")
            server.stop("immediate")
            worker.signal(signal.SIGTERM)
            assert worker.exit_code(1 + 5) == 0


# Replacing runners -------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_runner_that_reached_max_jobs_is_replaced_and_no_job_is_lost(world: World) -> None:
    worker = world.worker("--processes", "1", "--max-jobs", "20").ready()
    first = worker.runners()
    jobs = world.tasks.add.enqueue_many([{"left": n, "right": 0} for n in range(100)])
    assert [job.result(timeout=30) for job in jobs] == list(range(100))
    until(lambda: worker.runners() and not set(worker.runners()) & set(first), "the first one is gone")
    worker.ready(2)
    assert "is replaced: it has done" in worker.log
    assert {world.row(job).attempt for job in jobs} == {1}
    assert world.tasks.add.enqueue(left=1, right=1).result(timeout=30) == 2


def test_a_runner_that_exceeds_max_memory_is_replaced(world: World) -> None:
    worker = world.worker("--processes", "1", "--max-memory", "256M").ready()
    before = world.tasks.grow.enqueue(megabytes=300).result(timeout=30)
    worker.ready(2)
    until(lambda: before not in worker.runners(), "the first one is gone")
    assert "MiB of memory" in worker.log


def test_a_reload_finishes_running_jobs_and_continues_to_serve(world: World) -> None:
    worker = world.worker("--processes", "1").ready()
    job = world.tasks.wait.enqueue(file=world.file("job"))
    first = until(lambda: world.notes("job"), "it runs")[0]
    worker.signal(signal.SIGHUP)
    worker.ready(2)
    # The new runner works while the old one finishes.
    assert world.tasks.nap.enqueue(seconds=0).result(timeout=30) != first
    assert alive(first)
    world.let_go("job")
    assert job.result(timeout=30) == first
    until(lambda: not alive(first), "the old one has ended")
    assert world.row(job).attempt == 1


def test_a_reload_of_broken_code_keeps_the_old_runner(world: World) -> None:
    switch = world.folder / "broken"
    worker = world.worker("--processes", "1", WORKER_APP_BROKEN=str(switch)).ready()
    first = worker.runners()[0]
    switch.touch()
    worker.signal(signal.SIGHUP)
    until(lambda: worker.log.count("broken on purpose") >= 2, "it is tried again and again")
    assert world.tasks.nap.enqueue(seconds=0).result(timeout=30) == first
    switch.unlink()
    worker.ready(2)
    until(lambda: not alive(first), "the old one is gone")


def test_a_drained_worker_finishes_its_jobs_and_exits(world: World) -> None:
    worker = world.supervised(beat=0.2, expiry=1.2).ready()
    job = world.tasks.wait.enqueue(file=world.file("job"))
    until(lambda: world.notes("job"), "it runs")
    assert world.app.store.drain([row.id for row in world.app.store.workers()])
    until(lambda: "claims nothing more" in worker.log, "it has heard it")
    later = world.tasks.add.enqueue(left=1, right=1)
    world.let_go("job")
    assert worker.exit_code() == 0
    assert world.row(job).state is JobState.COMPLETED
    assert world.row(later).state is JobState.PENDING


def test_a_runner_with_an_unstoppable_job_is_replaced(world: World) -> None:
    worker = world.supervised(grace=0.2, patience=0.3).ready()
    job = world.tasks.stubborn_soon.enqueue(file=world.file("job"))
    first = until(lambda: world.notes("job"), "it runs")[0]
    worker.ready(2)
    until(lambda: not alive(first), "the stuck one is gone")
    assert "cannot be stopped" in worker.log
    assert job.executions()[0].state == "timed_out"
