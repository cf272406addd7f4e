"""Jobs that were held when a worker died: they are suspects, and what is charged to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from tests.engine.cluster_kit import eventually
from tests.engine.mill import PATIENCE, STORES, Mill, Place, a_place, opened

from tidemill.client.bound import BoundTask
from tidemill.domain.cluster import Worker
from tidemill.domain.decide import DEFAULT_POLICY
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import Claim, Job
from tidemill.domain.lanes import ClaimRequest
from tidemill.domain.states import ExecutionState, JobState
from tidemill.engine.duties import Reclaim
from tidemill.engine.runner import Runner
from tidemill.engine.settings import read_settings
from tidemill.ids import new_id

S, E = JobState, ExecutionState
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module", params=STORES)
def place(request: pytest.FixtureRequest) -> Place:
    return a_place(request)


@pytest.fixture
def mill(place: Place, tmp_path: Path) -> Iterator[Mill]:
    with place(tmp_path) as url, opened(url) as found:
        yield found


def work_of(mill: Mill) -> BoundTask[[], None]:
    """The task that the dead had claimed."""

    @mill.app.task(name="work")
    def work() -> None: ...

    return work


def held_by_the_dead(mill: Mill, *, start: bool) -> list[Claim]:
    """A worker claims all there is and dies, and what it held is reclaimed; the claims it had."""
    store = mill.line.real
    dead = store.register(Worker(new_id(), "dead"), lease=HOUR)
    claims = store.claim(ClaimRequest(dead.id, store.lanes(), 100, ["work"], start))
    if start:
        assert not store.start(claims)
    store.retire([dead.id])
    Reclaim(store, mill.clock, lambda _claim, _details: DEFAULT_POLICY, Random(1))()
    return claims


def jobs_of(mill: Mill, claims: list[Claim]) -> list[Job]:
    return mill.line.real.get([claim.id for claim in claims], tenant=ALL_TENANTS)


def test_nobody_knows_whether_one_that_was_only_claimed_had_begun_but_only_once(mill: Mill) -> None:
    work_of(mill).enqueue_many([{}] * 3)
    claims = held_by_the_dead(mill, start=False)
    assert {(job.state, job.attempt, job.crashes) for job in jobs_of(mill, claims)} == {(S.PENDING, 1, 1)}
    for _ in range(5):  # from now on it is known: as long as it is claimed, it has not begun
        held_by_the_dead(mill, start=False)
    assert {(job.state, job.attempt, job.crashes) for job in jobs_of(mill, claims)} == {(S.PENDING, 1, 1)}
    executions = mill.line.real.executions([claims[0].id], tenant=ALL_TENANTS)
    assert [one.state for one in executions] == [E.CRASHED, *[E.RELEASED] * 5]


def test_one_that_ran_at_three_deaths_is_given_up(mill: Mill) -> None:
    work_of(mill).enqueue()
    deaths = [held_by_the_dead(mill, start=True) for _ in range(3)]
    (job,) = jobs_of(mill, deaths[-1])
    assert (job.state, job.crashes) == (S.DEAD_LETTERED, 3)


def test_a_suspect_is_running_for_all_to_see_before_it_begins(mill: Mill) -> None:
    seen: list[JobState] = []

    @mill.app.task(name="work")
    async def work() -> None:
        (job,) = [job for job in jobs_of(mill, claims) if job.id not in over]
        seen.append(job.state)
        over.add(job.id)

    over: set[object] = set()
    jobs = work.enqueue_many([{}])
    claims = held_by_the_dead(mill, start=False)
    with mill.runner(concurrency=1):
        mill.ends(*jobs)
    assert seen == [S.RUNNING]


@pytest.mark.long
def test_a_suspect_begins_as_soon_as_its_start_can_be_written(mill: Mill) -> None:
    work_of(mill).enqueue()
    claims = held_by_the_dead(mill, start=False)
    (claim,) = claims
    mill.line.refuse("start", times=2)
    with mill.runner(threads=1):
        eventually(lambda: mill.state(claim.id) is S.COMPLETED, PATIENCE)


@contextmanager
def alone(mill: Mill, path: str) -> Iterator[Runner]:
    """A runner with one child process."""
    me = Worker(new_id(), "a runner")
    mill.line.real.register(me, lease=HOUR)
    settings = read_settings({"children": 1, "pumps": 1, "patience": 1})
    runner = Runner(mill.line.store, mill.app.registry, me.id, settings, mill.clock, app_path=path)
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


def test_what_waits_for_a_child_that_could_not_start_begins_when_one_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with opened() as mill:
        jobs = work_of(mill).enqueue_many([{}] * 3)
        held_by_the_dead(mill, start=True)
        with alone(mill, "late_app:app"):
            mill.becomes(jobs[0].id, S.PENDING, S.CLAIMED, S.RUNNING)
            (tmp_path / "late_app.py").write_text(_MODULE)
            mill.ends(*jobs)


def _lines(file: Path) -> list[str]:
    """What was written there: nothing before the file is, nor while it is still empty."""
    return file.read_text().split() if file.exists() else []


def test_a_suspect_that_was_lost_while_it_waited_never_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slow_app.py").write_text(
        "import os, time\nfrom tidemill import App, Context\napp = App('memory://')\n"
        "@app.task(name='work')\ndef work(ctx: Context) -> None:\n"
        f"    with open({str(ran)!r}, 'a') as out: print(ctx.job.id, file=out)\n"
        f"    while not os.path.exists({str(tmp_path / 'go')!r}): time.sleep(0.01)\n"
    )
    with opened() as mill:
        jobs = work_of(mill).enqueue_many([{}] * 2)
        held_by_the_dead(mill, start=True)
        with alone(mill, "slow_app:app") as runner:
            eventually(lambda: _lines(ran) and len(runner.holding()) == 2, PATIENCE)
            (running,) = _lines(ran)
            (waiting,) = [held for held in runner.holding() if str(held.claim.id) != running]
            runner.lose([waiting])
            (tmp_path / "go").touch()
            mill.ends(*[job for job in jobs if str(job.id) == running])
            runner.drain()
            assert runner.wait_empty(PATIENCE)
            eventually(lambda: runner.stats().running == 0, PATIENCE)
        assert _lines(ran) == [running]
