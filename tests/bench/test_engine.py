"""Tests of the engine benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench import engine_slots
from bench.engine_loads import percentile
from bench.engine_table import Check, Workload, best, checks, median, ratios, table, unquiet
from bench.engine_table import Column as Shown

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", [[], ["--embedded"]])
def test_a_small_run_drains_every_job_once_and_reports_the_rate(tmp_path: Path, how: list[str]) -> None:
    file = tmp_path / "results.json"
    words = ["--quick", "--stores", "sqlite", "--only", "w3", "--jobs", "300", "--json", str(file), *how]
    done = subprocess.run(
        [sys.executable, "-m", "bench.engine", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    assert results["failures"] == []
    (figures,) = results["workloads"]["w3"]["tidemill-sqlite"]
    assert (figures["jobs"], figures["again"]) == (300, 0)
    assert figures["rate"] > 0
    assert figures["rss_mb"] >= figures["rss_runner_mb"] > 0
    assert "drain on SQLite: jobs/s" in done.stdout


def test_the_slots_of_all_processes_are_read_together(tmp_path: Path) -> None:
    folder = tmp_path / "slots"
    engine_slots.clear(folder)
    assert engine_slots.look(folder).begun == 0
    starts = tmp_path / "starts"
    slot = engine_slots.Slot(folder, starts)
    slot.note(7)
    slot.note(8)
    # This process has not started a job yet.
    (folder / "1").write_bytes(b"\0" * 24)
    seen = engine_slots.look(folder)
    assert (seen.begun, len(seen.pids)) == (2, 1)
    assert 0 < seen.first <= seen.last
    assert [line.split()[0] for line in starts.read_text().splitlines()] == ["7", "8"]
    slot.close()


def test_a_ratio_is_computed_within_a_round() -> None:
    workload: Workload = {
        "a": [{"rate": 2.0}, {"rate": 30.0}, {"rate": 8.0}],
        "b": [{"rate": 1.0}, None, {"rate": 2.0}],
    }
    assert ratios(workload, "a", "b") == [2.0, 4.0]
    assert ratios(workload, "a", "c") == []
    assert median(workload, "b", "rate") == 1.5
    assert best(workload, ["a", "b", "c"], "rate") == "b"


def test_a_failed_side_is_marked() -> None:
    shown = table("W3", {"a": [{"rate": 1234.0, "others": 0.5}], "b": [None]}, [Shown("jobs/s", "rate")])
    assert "1,234" in shown
    assert "0.50!" in shown
    assert shown.splitlines()[-1].split() == ["b", "failed"]


def test_a_target_is_met_only_if_all_rounds_agree() -> None:
    assert Check("", [0.7, 0.8], ".2f", 0.6).verdict == "yes"
    assert Check("", [0.7, 0.8], ".2f", 0.6, most=True).verdict == "NO"
    assert Check("", [0.5, 0.7, 0.8], ".2f", 0.6).verdict == "open"
    assert "0.50 … 0.80" in Check("", [0.5, 0.7, 0.8], ".2f", 0.6).line()


def test_the_summary_omits_what_was_not_measured() -> None:
    results = checks({"w3": {"tidemill": [{"rate": 6.0}], "yardstick": [{"rate": 10.0}]}}, [])
    assert [(check.what.strip(), check.value) for check in results] == [
        ("drain, 1 process: jobs/s", 6.0),
        ("/ yardstick", 0.6),
    ]


def test_disturbed_measurements_are_counted_once() -> None:
    rounds = [{"others": 0.5}, {"others": 0.1}, None]
    assert unquiet({"w3": {"a": rounds}, "w7": {"a": rounds}}) == (1, 2)


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(200)]
    assert [percentile(values, part) for part in (50, 95, 99)] == [100.0, 190.0, 198.0]
    assert percentile([1.0], 99) == 1.0
