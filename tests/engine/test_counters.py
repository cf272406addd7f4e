"""Tests of worker counters by task and outcome: bounded, summed and monotonic."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
from tests.engine.worker_kit import World, a_world, until

from tidemill.domain.prometheus import rendered
from tidemill.domain.states import ExecutionState
from tidemill.engine.runner.counters import BOUNDS, Counters


def end(task: str, seconds: float | None = 0.01, how: str = "succeeded") -> Any:
    """An ended execution with the fields that the counters read."""
    began = None if seconds is None else 100.0
    return SimpleNamespace(
        claim=SimpleNamespace(task=task),
        transition=SimpleNamespace(execution=ExecutionState(how), reason=None),
        began=began,
        ended=100.0 + (seconds or 0.0),
    )


def lines(counters: Counters) -> list[str]:
    return [line for line in rendered(counters.families()).splitlines() if not line.startswith("#")]


def test_executions_are_counted_by_task_and_outcome() -> None:
    counters = Counters()
    counters.note([end("a"), end("a", how="failed"), end("a"), end("b", None, "released")])
    assert (counters.done, counters.errors) == (4, 1)
    said = lines(counters)
    assert 'tidemill_worker_executions_total{task="a",outcome="succeeded"} 2' in said
    assert 'tidemill_worker_executions_total{task="a",outcome="failed"} 1' in said
    assert 'tidemill_worker_executions_total{task="b",outcome="released"} 1' in said
    assert 'tidemill_worker_execution_seconds_count{task="a"} 3' in said
    assert 'tidemill_worker_execution_seconds_count{task="b"} 0' in said  # it never started


def test_buckets_include_their_bound_and_are_cumulative() -> None:
    counters = Counters()
    counters.note([end("a", 0.0), end("a", 0.5), end("a", 0.51), end("a", 10_000.0), end("a", -1.0)])
    said = lines(counters)
    below = [int(line.rsplit(None, 1)[1]) for line in said if "_bucket" in line]
    assert len(below) == len(BOUNDS) + 1
    assert below == sorted(below)
    assert 'tidemill_worker_execution_seconds_bucket{task="a",le="0.5"} 3' in said
    assert 'tidemill_worker_execution_seconds_bucket{task="a",le="1"} 4' in said
    assert 'tidemill_worker_execution_seconds_bucket{task="a",le="+Inf"} 5' in said


def test_tasks_beyond_the_limit_share_one_line_and_existing_lines_stay() -> None:
    counters = Counters(most=2)
    for task in ("a", "b", "c", "d", "a", "c"):
        counters.note([end(task)])
    data = counters.data()["tasks"]
    assert set(data) == {"a", "b", "other"}
    assert data["other"]["outcomes"] == {"succeeded": 3}


def test_counters_of_several_runners_are_summed() -> None:
    one, two = Counters(), Counters()
    one.note([end("a"), end("b", 2.0)])
    two.note([end("a", 0.2), end("a", how="crashed")])
    both = Counters().add(one.data()).add(two.data()).data()["tasks"]
    assert both["a"]["outcomes"] == {"succeeded": 2, "crashed": 1}
    assert sum(both["a"]["buckets"]) == 3
    assert both["b"]["seconds"] == pytest.approx(2.0)


def test_claims_are_counted_by_result_and_summed_over_runners() -> None:
    one, two = Counters(), Counters()
    for asked, claimed in ((10, 10), (10, 3), (10, 0), (10, 0), (10, None)):
        one.claim(asked, claimed)
    two.claim(5, 5)
    one.collide("busy")
    two.collide("lost", 2)
    said = lines(Counters().add(one.data()).add(two.data()))
    for how, count in (("full", 2), ("some", 1), ("empty", 2), ("failed", 1)):
        assert f'tidemill_worker_claims_total{{result="{how}"}} {count}' in said
    assert "tidemill_worker_claimed_jobs_total 18" in said
    assert 'tidemill_worker_contention_total{kind="busy"} 1' in said
    assert 'tidemill_worker_contention_total{kind="lost"} 2' in said


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(f"sqlite:///{tmp_path}/jobs.db", tmp_path) as world:
        yield world


@pytest.mark.long
def test_the_counters_of_a_worker_do_not_decrease_when_a_runner_is_replaced(world: World) -> None:
    worker = world.worker("--processes", "1", "--health-port", "0").ready()
    address = re.search(r'"health": "([^"]+)"', worker.out)
    assert address is not None

    def count() -> int:
        with urlopen(f"{address[1]}/metrics", timeout=30) as answer:
            found = re.search(
                r'executions_total\{task="add",outcome="succeeded"\} (\d+)', answer.read().decode()
            )
        return int(found[1]) if found else 0

    def work(jobs: int) -> None:
        for job in [world.tasks.add.enqueue(left=1, right=1) for _ in range(jobs)]:
            assert job.result(timeout=60) == 2

    work(3)
    until(lambda: count() == 3, "they are counted", 60)
    os.kill(worker.runners()[0], signal.SIGKILL)
    worker.ready(2)
    assert count() == 3
    work(2)
    until(lambda: count() == 5, "the new ones, too", 60)
    worker.signal(signal.SIGTERM)
    assert worker.exit_code(60) == 0
