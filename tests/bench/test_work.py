"""Tests of the benchmarks of jobs that do some work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench import engine_slots, engine_work
from bench.engine_sides import tidemill
from bench.engine_storage import File
from bench.engine_work import LOADS, Load, loads_of
from bench.peers.harness import arrivals
from bench.peers.work import Work, read_work, spin

ROOT = Path(__file__).resolve().parents[2]
_ONE_JOB = """
import asyncio
from bench.peers import harness
harness.body(1)
harness.working_body(2)
asyncio.run(harness.waiting_body(3))
"""


def quick_run(folder: Path, what: str) -> dict[str, dict[str, float]]:
    """Return the figures of a smoke test of one workload on SQLite, by system."""
    file = folder / "results.json"
    words = ["--quick", "--stores", "sqlite", "--only", what, "--json", str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.engine", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    assert results["failures"] == []
    return {name: rounds[0] for name, rounds in results["workloads"][what].items()}


def test_work_is_read_as_it_is_written() -> None:
    for work in (Work("spin", 1_000.0), Work("block", 0.005), Work("await", 1.0)):
        assert read_work(str(work)) == work
    assert read_work("") == Work()
    assert spin(10) == sum(number * number for number in range(10))


def test_a_run_has_a_job_for_each_slot_and_no_more_than_a_slow_system_drains() -> None:
    load = Load("w10", "10 threads", "block", 0.005, 10)
    assert load.ideal == 2_000.0
    assert load.jobs(3.0, None) == 6_000
    assert load.jobs(3.0, 500) == 500
    assert replace(load, seconds=1.0).jobs(0.5, None) == 10
    assert replace(load, processes=2).ideal == 4_000.0


def test_jobs_come_every_50_ms_or_at_random_times_with_a_rate() -> None:
    assert arrivals(0.2, None) == pytest.approx([0.0, 0.05, 0.1, 0.15])
    times = arrivals(100.0, 70.0)
    assert len(times) == pytest.approx(7_000, rel=0.1)
    assert times == sorted(times) == arrivals(100.0, 70.0)
    assert 0 < times[0] < times[-1] < 100.0


def test_a_side_runs_only_the_work_that_its_jobs_can_do(tmp_path: Path) -> None:
    ours = tidemill(File(tmp_path), "tidemill-sqlite")
    assert {load.what for load in LOADS} == {"w9", "w10", "w11"}
    assert [load.variant for load in loads_of("w9", ours)] == ["1 ms", "8 ms", "50 ms"]
    threads = replace(ours, works=("block",))
    assert loads_of("w9", threads) == []
    assert len(loads_of("w10", threads)) == 2


@pytest.mark.parametrize("embedded", [False, True])
def test_threads_and_coroutines_are_options_of_the_worker(tmp_path: Path, embedded: bool) -> None:
    ours = tidemill(File(tmp_path), "tidemill-sqlite", embedded=embedded)
    (words,) = ours.workers(1, None, 7)
    assert words[words.index("--threads") + 1] == "7"
    assert "--concurrency" not in words


def test_a_job_that_does_some_work_records_its_end(tmp_path: Path) -> None:
    slots = tmp_path / "slots"
    engine_slots.clear(slots)
    variables = {**os.environ, "BENCH_SLOTS": str(slots), "BENCH_WORK": "block 0.01"}
    subprocess.run([sys.executable, "-c", _ONE_JOB], cwd=ROOT, env=variables, check=True)
    seen = engine_slots.look(slots)
    assert (seen.begun, seen.ended, len(seen.pids)) == (3, 2, 1)
    assert seen.last_end - seen.last >= 10_000_000


def test_bare_loops_report_a_rate() -> None:
    loops = engine_work.calibrated(0.001)
    assert loops > 0
    assert engine_work.bare_rate(loops, 10, 2) > 0


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_small_run_of_jobs_that_report_stores_every_line(tmp_path: Path) -> None:
    figures = quick_run(tmp_path, "w13")["tidemill-sqlite"]
    assert (figures["jobs"], figures["again"]) == (1_000, 0)
    assert figures["lines_s"] == pytest.approx(10 * figures["rate"], rel=1e-3)
    assert figures["share"] == pytest.approx(figures["rate"] / figures["plain_rate"], rel=1e-3)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_small_run_measures_the_latency_of_a_busy_worker(tmp_path: Path) -> None:
    figures = quick_run(tmp_path, "w14")["tidemill-sqlite"]
    assert figures["missing"] == 0
    assert figures["p50"] <= figures["p99"] <= figures["max"]
    assert 0 < figures["busy"] < 1.0


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_small_run_of_jobs_that_block_ends_every_job_once(tmp_path: Path) -> None:
    figures = quick_run(tmp_path, "w10")["tidemill-sqlite, 10 threads"]
    assert (figures["jobs"], figures["again"]) == (1_000, 0)
    assert 0 < figures["share"] < 1.1
