"""The benchmark of a hub runs to its end, on few connections.

What it costs PostgreSQL depends on the load of the machine, so no limit on that is asserted here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


def test_a_hub_runs_the_jobs_of_many_hands_on_few_connections() -> None:
    words = ["-m", "bench.hub", "--hands", "300", "--jobs", "2000", "--seconds", "0.3", "--json"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    for side in ("direct", "hub"):
        assert figures[side]["jobs"] >= 2000
        assert figures[side]["server_us"] > 0
    assert figures["ratio"] > 0
    assert 0 < figures["hub"]["connections"] <= 4
    # One deal, which is one claim in PostgreSQL, answers several hands.
    assert figures["hub"]["joined"] > 1
