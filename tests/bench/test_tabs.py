"""A small run of the benchmark of open tabs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


def test_tabs_follow_the_changes_and_rest_without_any(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    words = ["--store", "sqlite", "--tabs", "4", "--changes", "40", "--seconds", "4", "--jobs", "50"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.tabs", *words, "--json", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    without, alone, at_rest, together = json.loads(file.read_text())
    assert [row["tabs"] for row in (without, alone, at_rest, together)] == [0, 1, 4, 4]
    assert at_rest["changes_per_second"] == 0
    assert without["fetches_per_tab"] == 0
    assert alone["fetches_per_tab"] > 0
    assert together["fetches_per_tab"] > at_rest["fetches_per_tab"]
    assert together["bytes_per_tab"] > 0
