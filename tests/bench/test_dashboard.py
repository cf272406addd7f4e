"""The benchmark of the dashboard asks for every page, at rest and beside a worker, and leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


def test_a_small_run_measures_every_page_twice(fresh_postgres_url: str, tmp_path: Path) -> None:
    file = tmp_path / "found.json"
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
    found = json.loads(file.read_text())
    assert found["alone"].keys() == found["beside"].keys()
    for part in ("alone", "beside"):
        for name, row in found[part].items():
            assert row["status"] == [200], name
            assert 0 < row["median"] <= row["p95"]
