"""The path of one job: its modules and Python calls stay within bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
MOST_MODULES = 12
"""Modules of Tidemill that run code for one ``enqueue`` on PostgreSQL."""

MOST_CALLS = 60
MOST_CALLS_OF_A_REQUEST = 130


def test_one_enqueue_runs_few_modules_and_calls(fresh_postgres_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.path", "--postgres", fresh_postgres_url, "--rounds", "3", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert set(found) == {"enqueue", "job", "POST /api/jobs"}
    assert len(found["enqueue"]["modules"]) <= MOST_MODULES, found["enqueue"]["modules"]
    assert found["enqueue"]["calls"] <= MOST_CALLS
    assert "tidemill.client.enqueue.routes" in found["enqueue"]["modules"]
    assert found["job"]["own_calls"] > 0
    assert found["enqueue"]["own_calls"] < found["POST /api/jobs"]["own_calls"] <= MOST_CALLS_OF_A_REQUEST
