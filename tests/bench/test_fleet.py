"""The benchmarks of idle fleets and of shards run to their end, and show what does not depend on the machine's load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


def figures_of(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", *words, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_of_an_idle_fleet_with_shared_listeners_few_workers_look_for_a_job() -> None:
    alone, shared = figures_of("bench.fleet", "--workers", "60", "--seconds", "6")["ways"]
    assert (alone["listeners"], shared["listeners"]) == (76, 16)
    assert alone["looks"] >= 59
    # A call wakes eight workers on average; a look that was repeated wakes all once.
    assert shared["looks"] <= 30
    assert alone["server_ms"] > shared["server_ms"] > 0


def test_a_killed_shard_is_named_and_delays_no_tenant_of_the_others() -> None:
    figures = figures_of("bench.shards", "--shards", "2", "--jobs", "1000", "--rounds", "10")
    outage = figures["outage"]
    assert (outage["missing"], outage["missing_again"]) == (["s2"], ["s2"])
    assert outage["first_list_s"] < 5
    assert outage["accepted_for_others"] == 20
    assert outage["refused_for_its_tenant"]
    assert outage["whole_again"]
    assert [row["what"] for row in figures["comparisons"]] == [
        "list of 50 jobs",
        "counts by status",
        "one enqueue",
    ]
