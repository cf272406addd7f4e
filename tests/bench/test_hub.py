"""Cost of a job for PostgreSQL with many small workers, directly and through a hub."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
MOST = 0.25
"""Share of the CPU time of direct one-slot workers. It was 0.08 with 1,000 hands and 0.10 with 300, on two busy cores."""


def test_a_hub_costs_postgresql_a_fraction_of_direct_workers() -> None:
    words = ["-m", "bench.hub", "--hands", "300", "--jobs", "2000", "--seconds", "0.3", "--json"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["hub"]["jobs"] >= 2000
    assert figures["ratio"] <= MOST
    assert figures["hub"]["connections"] <= 4
