"""Flows in many worker processes: scenario S6, and stores without a guard."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.faults.kit import OPEN, Worker, child_environment, until
from tests.faults.mutations import WRONG
from tests.grounds import url_of

from tidemill import each
from tidemill.domain.filters import ALL_TENANTS, JobFilter

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes through /proc"),
]

MODULE = "tests.client.flows.worker_app"
WRONG_APP = "tests.client.flows.wrong_app:app"
WIDE = 10_000
SUPERVISORS, RUNNERS = 2, 4
KILLS = 12
SETTINGS: dict[str, object] = {"beat": 1, "expiry": 6, "lease_beat": 1, "lease_expiry": 4}
SECONDS = 240.0
REPAIRED = "joins whose counts were wrong"
"""Part of the log line of the duty that repairs joins."""


@pytest.fixture(params=["sqlite", "postgres"])
def kit(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the app, with a store that other processes reach."""
    monkeypatch.setenv("FLOW_STORE", url_of(request.param, tmp_path, request))
    sys.modules.pop(MODULE, None)
    module = importlib.import_module(MODULE)
    with module.app:
        yield module
    sys.modules.pop(MODULE, None)


@pytest.fixture
def hire(kit: Any, tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    """Start workers of four processes each; all of them are killed afterwards."""
    workers: list[Worker] = []

    def start() -> Worker:
        place = tmp_path / f"worker-{len(workers)}"
        words = [str(RUNNERS), json.dumps(SETTINGS), WRONG_APP]
        command = [sys.executable, "-m", "tests.faults.chaos_worker", *words]
        workers.append(Worker(command, place, child_environment(tmp_path)))
        return workers[-1]

    yield start
    for worker in workers:
        worker.end()


def start_wide(kit: Any) -> Any:
    """Start a map over many items and a node that needs all of them."""
    flow = kit.app.flow("wide")
    members = flow.map(kit.member, number=each(list(range(WIDE)))).named("members")
    flow.returns(flow.add(kit.total, parts=members.results).named("last").result)
    return flow.start()


def is_below(run: Any, limit: int) -> bool:
    """Whether at most this many jobs of the flow have not ended."""
    left: int = run.counts().remaining
    return left <= limit


def test_s6_ten_thousand_members_are_counted_while_eight_processes_are_killed(
    kit: Any, hire: Callable[[], Worker]
) -> None:
    random, started = Random(6), [hire() for _ in range(SUPERVISORS)]
    workers = [worker.ready(RUNNERS) for worker in started]
    run = start_wide(kit)

    def kill_one() -> bool:
        worker = random.choice(workers)
        pids = worker.runners()
        return bool(pids) and worker.kill_runner(random.choice(pids))

    for number in range(1, KILLS + 1):
        limit = WIDE - WIDE * number // (KILLS + 1)
        until(partial(is_below, run, limit), f"{limit} members are left", SECONDS)
        if number == KILLS // 2:
            # A supervisor dies together with its runners, and another one takes its place.
            workers[0].kill()
            workers[0] = hire()
        else:
            until(kill_one, "a process is killed", SECONDS)
    assert run.result(timeout=SECONDS) == sum(range(WIDE))
    until(lambda: run.status == "completed", "the flow has ended", SECONDS)
    assert tuple(run.counts()[1:]) == (WIDE + 1, 0, 0)
    assert kit.app.store.recount_joins().repaired == frozenset()
    assert not any(REPAIRED in worker.log for worker in {*started, *workers})
    executions = [entry.state for entry in run.node("last").job.executions()]
    assert executions.count("succeeded") == 1


@pytest.mark.parametrize("kit", ["postgres"], indirect=True)
def test_eight_processes_that_do_not_lock_first_lose_ends(
    kit: Any, hire: Callable[[], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WRONG, "no-lock-first")
    workers = [worker.ready(RUNNERS) for worker in [hire() for _ in range(SUPERVISORS)]]
    start_wide(kit)
    members = JobFilter(ALL_TENANTS, tasks=frozenset({kit.member.name}), states=OPEN)
    until(lambda: not kit.app.store.count(members), "every member has ended", SECONDS)
    assert kit.app.store.recount_joins().repaired or any(REPAIRED in worker.log for worker in workers)


@pytest.mark.parametrize(("wrong", "lost"), [("", False), ("no-followed-guard", True)])
def test_the_end_of_a_joined_job_is_lost_only_without_the_guard_of_followed_jobs(
    kit: Any,
    hire: Callable[[], Worker],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: str,
    lost: bool,
) -> None:
    monkeypatch.setenv(WRONG, wrong)
    worker, gate = hire().ready(RUNNERS), tmp_path / "gate"
    held = kit.hold.enqueue(gate=str(gate))
    until(lambda: held.refresh().status == "running", "the job is running", SECONDS)
    # The job was claimed before another one needs it, so its worker ends it as a plain job.
    waiter = kit.join.enqueue(job=str(held.id))
    until(lambda: waiter.refresh().status == "waiting", "the other job waits", SECONDS)
    gate.touch()
    until(lambda: held.refresh().status == "completed", "the job has ended", SECONDS)
    repaired = kit.app.store.recount_joins().repaired
    assert (bool(repaired) or REPAIRED in worker.log) is lost
    assert waiter.result(timeout=SECONDS) == "joined"
