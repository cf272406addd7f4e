"""A small run of the dashboard benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


def test_a_small_run_measures_every_page_twice(fresh_postgres_url: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    words = [
        "--postgres",
        fresh_postgres_url,
        "--jobs",
        "200",
        "--times",
        "2",
        "--backlog",
        "2000",
        "--processes",
        "1",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "bench.dashboard", *words, "--json", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    assert results["alone"].keys() == results["beside"].keys()
    for part in ("alone", "beside"):
        for name, row in results[part].items():
            assert row["status"] == [200], name
            assert 0 < row["median"] <= row["p95"]
