"""Tests of suspects, which are jobs that were held when a worker died."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.harness import PATIENCE, STORES, Harness, Place, a_place, opened
from tests.engine.kit import a_claim

from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import DEFAULT_POLICY
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import NO_DETAILS, Claim, JobRow
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.records import PauseKind
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.duties import Promote, Reclaim
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.exchange.job_starts import lots_of
from tidemill.engine.executors.kinds import PROCESS
from tidemill.engine.runner.runner import Runner
from tidemill.engine.worker_settings import read_settings
from tidemill.ids import new_id

S, E = JobState, ExecutionState
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def harness(place: Place, tmp_path: Path) -> Iterator[Harness]:
    with place(tmp_path) as url, opened(url) as found:
        yield found


def work_of(harness: Harness) -> BoundTask[[], None]:
    """The task whose jobs the dead worker claimed."""

    @harness.app.task(name="work")
    def work() -> None: ...

    return work


def held_by_the_dead(harness: Harness, *, start: bool, batch: int = 500) -> list[Claim]:
    """Let a worker claim all jobs and die, reclaim them, and return its claims."""
    store = harness.line.real
    dead = store.register(Worker(new_id(), "dead"), lease=HOUR)
    claims = store.claim(ClaimRequest(dead.id, store.lanes(), 100, ["work"], start))
    if start:
        assert not store.start(claims)
    reclaim = Reclaim(store, harness.clock, lambda _claim, _details: DEFAULT_POLICY, Random(1), batch=batch)
    reclaim.now([dead.id])
    return claims


def jobs_of(harness: Harness, claims: list[Claim]) -> list[JobRow]:
    return harness.line.real.get([claim.id for claim in claims], tenant=ALL_TENANTS)


def test_jobs_held_together_become_suspects_and_are_not_charged(harness: Harness) -> None:
    work_of(harness).enqueue_many([{}] * 3)
    deaths = [held_by_the_dead(harness, start=True) for _ in range(5)]
    rows = jobs_of(harness, deaths[-1])
    assert {(job.state, job.attempt, job.crashes) for job in rows} == {(S.PENDING, 0, 1)}


def test_jobs_that_share_a_worker_across_batches_are_not_treated_as_alone(harness: Harness) -> None:
    work_of(harness).enqueue_many([{}] * 5)
    deaths = [held_by_the_dead(harness, start=True, batch=batch) for batch in (1, 2, 4)]
    rows = jobs_of(harness, deaths[-1])
    assert {(job.state, job.attempt, job.crashes) for job in rows} == {(S.PENDING, 0, 1)}


def test_a_job_that_was_only_claimed_counts_as_started_only_the_first_time(harness: Harness) -> None:
    work_of(harness).enqueue()
    claims = held_by_the_dead(harness, start=False)
    assert {(job.state, job.attempt, job.crashes) for job in jobs_of(harness, claims)} == {(S.PENDING, 1, 1)}
    # The job is a suspect now. A suspect is stored as running before it starts, so a mere claim is not a start.
    for _ in range(5):
        held_by_the_dead(harness, start=False)
    assert {(job.state, job.attempt, job.crashes) for job in jobs_of(harness, claims)} == {(S.PENDING, 1, 1)}
    executions = harness.line.real.executions([claims[0].id], tenant=ALL_TENANTS)
    assert [one.state for one in executions] == [E.CRASHED, *[E.RELEASED] * 5]


def test_a_job_that_ran_during_three_worker_deaths_is_given_up(harness: Harness) -> None:
    work_of(harness).enqueue()
    deaths = [held_by_the_dead(harness, start=True) for _ in range(3)]
    (job,) = jobs_of(harness, deaths[-1])
    assert (job.state, job.crashes) == (S.DEAD_LETTERED, 3)


def test_a_suspect_is_stored_as_running_before_it_starts(harness: Harness) -> None:
    seen: list[JobState] = []

    @harness.app.task(name="work")
    async def work() -> None:
        (job,) = [job for job in jobs_of(harness, claims) if job.id not in over]
        seen.append(job.state)
        over.add(job.id)

    over: set[object] = set()
    jobs = work.enqueue_many([{}])
    claims = held_by_the_dead(harness, start=False)
    with harness.runner(concurrency=1):
        harness.ends(*jobs)
    assert seen == [S.RUNNING]


@pytest.mark.long
def test_a_suspect_starts_as_soon_as_its_start_can_be_written(harness: Harness) -> None:
    work_of(harness).enqueue()
    claims = held_by_the_dead(harness, start=False)
    (claim,) = claims
    harness.line.refuse("start", times=2)
    with harness.runner(threads=1):
        eventually(lambda: harness.state(claim.id) is S.COMPLETED, PATIENCE)


@contextmanager
def alone(harness: Harness, path: str, threads: int = 1) -> Iterator[Runner]:
    """A runner with one child process, and a spare one for each further thread."""
    me = Worker(new_id(), "a runner")
    harness.line.real.register(me, lease=HOUR)
    settings = read_settings({"children": 1, "threads": threads, "pumps": 1, "patience": 1})
    runner = Runner(harness.line.store, harness.app.registry, me.id, settings, harness.clock, app_path=path)
    runner.start()
    try:
        yield runner
    finally:
        runner.stop(0)


_MODULE = """
from tidemill import App

app = App("memory://")
@app.task(name="work")
def work() -> str:
    return "done"
"""


def test_suspects_waiting_for_a_child_that_failed_to_start_run_once_one_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with opened() as harness:
        jobs = work_of(harness).enqueue_many([{}] * 3)
        held_by_the_dead(harness, start=True)
        with alone(harness, "late_app:app", threads=3):
            harness.becomes(jobs[0].id, S.PENDING, S.CLAIMED, S.RUNNING)
            (tmp_path / "late_app.py").write_text(_MODULE)
            harness.ends(*jobs)


def _lines(file: Path) -> list[str]:
    """The words in the file, or none if it does not exist yet."""
    return file.read_text().split() if file.exists() else []


def test_a_suspect_lost_while_it_waits_never_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = tmp_path / "ran"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow_app.py").write_text(
        "import os, time\nfrom tidemill import App, Context\napp = App('memory://')\n"
        "@app.task(name='work')\ndef work(ctx: Context) -> None:\n"
        f"    with open({str(ran)!r}, 'a') as out: print(ctx.job.id, file=out)\n"
        f"    while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
    )
    with opened() as harness:
        jobs = work_of(harness).enqueue_many([{}] * 2)
        held_by_the_dead(harness, start=True)
        with alone(harness, "slow_app:app") as runner:
            eventually(lambda: _lines(ran) and len(runner.holding()) == 2, PATIENCE)
            (running,) = _lines(ran)
            (waiting,) = [held for held in runner.holding() if str(held.claim.id) != running]
            runner.lose([waiting])
            (tmp_path / "go").touch()
            harness.ends(*[job for job in jobs if str(job.id) == running])
            runner.drain()
            assert runner.wait_empty(PATIENCE)
            eventually(lambda: runner.stats().running == 0, PATIENCE)
        assert _lines(ran) == [running]


def test_a_runner_without_children_runs_each_suspect_alone(harness: Harness) -> None:
    running: list[int] = []
    most: list[int] = []

    @harness.app.task(name="work")
    async def work() -> None:
        running.append(1)
        await asyncio.sleep(0.02)
        most.append(len(running))
        running.pop()

    work.enqueue_many([{}] * 5)
    suspects = held_by_the_dead(harness, start=True)
    jobs = work.enqueue_many([{}] * 5)
    with harness.runner(concurrency=10):
        harness.ends(*jobs)
        eventually(lambda: {job.state for job in jobs_of(harness, suspects)} == {S.COMPLETED}, PATIENCE)
        later = work.enqueue()
        harness.ends(later)
    assert most[-1] == 1
    assert most.count(1) >= 5 + 1


def test_a_suspect_waiting_for_an_idle_runner_is_released_when_it_stops(harness: Harness) -> None:
    begun, gate = threading.Event(), threading.Event()

    @harness.app.task(name="work")
    def work() -> None: ...

    @harness.app.task
    def long() -> None:
        begun.set()
        gate.wait(PATIENCE)

    work.enqueue()
    (claim,) = held_by_the_dead(harness, start=True)
    harness.pause(PauseKind.TASK, "work")
    other = long.enqueue()
    with harness.runner(threads=2) as runner:
        assert begun.wait(PATIENCE)
        harness.resume(PauseKind.TASK, "work")
        eventually(lambda: len(runner.holding()) == 2, PATIENCE)
        assert harness.state(claim.id) is S.CLAIMED
        runner.drain()
        stopping = threading.Thread(target=runner.stop, args=(PATIENCE,))
        stopping.start()
        harness.becomes(claim.id, S.PENDING)
        gate.set()
        stopping.join(PATIENCE)
    assert harness.state(other) is S.COMPLETED


def test_a_runner_runs_more_suspects_at_a_time_than_it_has_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "together_app.py").write_text(
        "import os, time\nfrom tidemill import App\napp = App('memory://')\n"
        "@app.task(name='work')\ndef work() -> None:\n"
        f"    open({str(tmp_path / 'here')!r} + str(os.getpid()), 'w').close()\n"
        f"    while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
    )
    with opened() as harness:
        jobs = work_of(harness).enqueue_many([{}] * 10)
        held_by_the_dead(harness, start=True)
        with alone(harness, "together_app:app", threads=4) as runner:
            eventually(lambda: len(list(tmp_path.glob("here*"))) == 4, PATIENCE)
            # As many suspects again wait here. The others are left to another runner.
            eventually(lambda: len(runner.holding()) == 8, PATIENCE)
            (tmp_path / "go").touch()
            Promote(harness.line.real, batch=100)()
            states = [harness.state(job) for job in jobs]
            assert states.count(S.SCHEDULED) + states.count(S.PENDING) <= 2
            while any(harness.state(job) is not S.COMPLETED for job in jobs):
                Promote(harness.line.real, batch=100)()
                runner.wake()
                runner.rest(0.05)
        assert {harness.row(job).crashes for job in jobs} == {1}
        assert {harness.row(job).attempt for job in jobs} == {1}


def test_a_suspect_that_keeps_returning_runs_alone(harness: Harness) -> None:
    declared = harness.app.registry.get(work_of(harness).name)
    fresh = a_claim()._replace(token=21, attempt=1, crashes=0)
    claims = [fresh, fresh._replace(crashes=1, token=20), fresh._replace(crashes=1)]
    jobs = [HeldJob(claim, declared, NO_DETAILS, harness, PROCESS) for claim in claims]  # type: ignore[arg-type]
    lots, apart = lots_of(jobs, (), alone=True)
    assert lots[PROCESS] == jobs[:2]
    assert apart == jobs[2:]
    assert lots_of(jobs, (), alone=False)[1] == jobs[1:]
