"""Number of Python calls that one HTTP request takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = {"POST /api/jobs": 136, "GET /api/jobs/{id}": 95}


def test_a_request_takes_few_python_calls() -> None:
    # In a process of its own: a job takes more calls once another test has imported OpenTelemetry.
    command = [sys.executable, "-m", "bench.http_calls"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    totals = {
        name.strip(): int(total) for name, total in re.findall(r"^(.+?) +(\d+) calls$", done.stdout, re.M)
    }
    assert totals.keys() == MOST.keys()
    for name, total in totals.items():
        assert total <= MOST[name], f"{name} takes {total} calls; see python3 dev.py bench http_calls --list"
