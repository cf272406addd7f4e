"""The chaos run, briefly, as people start it; and built wrong on purpose it ends red. At full length: ``dev.py faults``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.faults.kit import ROOT
from tests.services import go_without

from tidemill.testing.postgres import find_programs
from tidemill.testing.processes import ServiceMissing

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked at through /proc"),
]


def chaos(tmp_path: Path, *words: str) -> dict[str, Any]:
    """Run it; what it printed for programs, and with which code it ended."""
    command = [sys.executable, "-m", "tests.faults.chaos", "--json", *words]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.startswith("{"), done.stderr[-4000:]
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts | {"code": done.returncode, "said": done.stderr[-6000:]}


@pytest.fixture
def postgres_programs() -> None:
    try:
        find_programs(None)
    except ServiceMissing as missing:
        go_without("postgres", missing)


BUSY = {"I9"}
"""On a machine that has other things to do a lease of eight seconds may run out with nothing done to its worker, and a job runs again
without a fault that explains it. That is judged by the long run, on a machine of its own.
"""


def broken(facts: dict[str, Any]) -> set[str]:
    return {name for name, finding in facts["invariants"].items() if finding["broken"]}


def test_every_promise_is_kept_in_a_file(tmp_path: Path) -> None:
    facts = chaos(tmp_path, "--store", "sqlite", "--minutes", "0.3", "--seed", "1")
    assert broken(facts) <= BUSY, facts["said"]
    assert facts["code"] == bool(broken(facts))
    assert facts["accepted"] > 50
    assert sum(facts["faults"].values()) >= 3


def test_every_promise_is_kept_in_a_database(postgres_programs: None, tmp_path: Path) -> None:
    facts = chaos(tmp_path, "--store", "postgres", "--minutes", "0.3", "--seed", "1")
    assert broken(facts) <= BUSY, facts["said"]
    assert facts["code"] == bool(broken(facts))
    assert facts["accepted"] > 50
    assert sum(facts["faults"].values()) >= 3


@pytest.mark.parametrize(
    ("wrong", "minutes", "faults", "law"),
    [
        ("no-token", "0.5", "halt past lease", "I6"),
        ("no-unique-fire", "0.15", "kill runner", "I12"),
        ("attempts-at-finish", "0.2", "kill runner,kill worker", "I8"),
    ],
)
def test_a_store_that_was_built_wrong_is_found_out_by_one_of_three_short_runs(
    tmp_path: Path, wrong: str, minutes: str, faults: str, law: str
) -> None:
    words = ("--store", "sqlite", "--minutes", minutes, "--wrong", wrong, "--faults", faults)
    said = ""
    for seed in ("1", "2", "3"):  # a short run deals two or three blows, and each may miss
        facts = chaos(tmp_path, *words, "--seed", seed)
        assert facts["code"] == bool(broken(facts))
        if law in broken(facts):
            return
        said = facts["said"]
    pytest.fail(said)
