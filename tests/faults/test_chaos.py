"""Short chaos runs through the command line; ``dev.py faults`` runs longer ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.faults.kit import ROOT
from tests.faults.phase_list import phases_for
from tests.faults.protections import SWITCHES
from tests.faults.stepping import find_faketime
from tests.servers.postgres import find_programs
from tests.servers.processes import ServiceMissing
from tests.services import go_without

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes through /proc"),
]


def chaos(tmp_path: Path, *words: str) -> dict[str, Any]:
    """Run the command; return its JSON output, exit code and stderr."""
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
    return facts | {"code": done.returncode, "stderr": done.stderr[-6000:]}


@pytest.fixture
def postgres_programs() -> None:
    try:
        find_programs(None)
    except ServiceMissing as missing:
        go_without("postgres", missing)


@pytest.fixture
def faketime() -> None:
    """Require the library that steps a server's clock."""
    try:
        find_faketime()
    except ServiceMissing as missing:
        go_without("faketime", missing)


BUSY = {"I9"}
"""Invariants that a short run on a busy machine may break.

A lease of eight seconds may expire without a fault, and a job then runs again without an explanation. The long run, on an idle
machine, checks this.
"""


def broken(facts: dict[str, Any]) -> set[str]:
    return {name for name, finding in facts["invariants"].items() if finding["broken"]}


def test_every_invariant_holds_on_sqlite(tmp_path: Path) -> None:
    facts = chaos(tmp_path, "--store", "sqlite", "--minutes", "0.3", "--seed", "1")
    assert broken(facts) <= BUSY, facts["stderr"]
    assert facts["code"] == bool(broken(facts))
    assert facts["accepted"] > 50
    assert sum(facts["faults"].values()) >= 3
    assert {phase.name for phase in phases_for("sqlite")} <= facts["faults"].keys()


def test_every_invariant_holds_on_postgres(postgres_programs: None, tmp_path: Path) -> None:
    facts = chaos(tmp_path, "--store", "postgres", "--minutes", "0.3", "--seed", "1")
    assert broken(facts) <= BUSY, facts["stderr"]
    assert facts["code"] == bool(broken(facts))
    assert facts["accepted"] > 50
    assert sum(facts["faults"].values()) >= 3
    assert {phase.name for phase in phases_for("postgres")} <= facts["faults"].keys()


LEASES = "halted supervisor,suspended supervisor,clock step"
FEW = 10
"""Crashed executions that a busy machine may cause on its own. If a clock step ends leases, all running jobs crash."""


@pytest.mark.nightly
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_leases_hold_against_halted_supervisors_and_clock_steps(
    store: str, postgres_programs: None, faketime: None, tmp_path: Path
) -> None:
    facts = chaos(tmp_path, "--store", store, "--minutes", "0.5", "--seed", "3", "--faults", LEASES)
    assert broken(facts) <= BUSY, facts["stderr"]
    assert facts["faults"].keys() >= set(LEASES.split(",")), facts["stderr"]
    if BUSY & broken(facts):
        assert facts["invariants"]["I9"]["broken"] <= FEW, facts["stderr"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("without", "store", "minutes", "faults", "invariant"),
    [
        ("lease-fence", "sqlite", "0.3", "halted supervisor", "I25"),
        ("clock-proof", "sqlite", "0.4", "clock step", "I9"),
        ("release-order", "sqlite", "0", "rolling deploy", "I27"),
        ("worker-fence", "postgres", "0", "rewound database", "I30"),
        ("sick-check", "sqlite", "0", "wedged runner", "I26"),
        ("file-latch", "sqlite", "0", "replaced file", "I28"),
        ("serves", "sqlite", "0", "newer schema", "I29"),
    ],
)
def test_a_run_without_a_protection_breaks_its_invariant(
    tmp_path: Path,
    postgres_programs: None,
    without: str,
    store: str,
    minutes: str,
    faults: str,
    invariant: str,
) -> None:
    words = ("--store", store, "--minutes", minutes, "--without", without, "--faults", faults)
    stderr = ""
    for seed in ("1", "2"):  # one fault may miss
        facts = chaos(tmp_path, *words, "--seed", seed)
        if invariant in broken(facts):
            return
        stderr = facts["stderr"]
    pytest.fail(stderr)


@pytest.mark.parametrize("name", SWITCHES)
def test_every_switch_finds_the_protection_that_it_removes(name: str) -> None:
    program = f"from tests.faults.protections import switch_off; switch_off({name!r})"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("wrong", "minutes", "faults", "invariant"),
    [
        ("no-fence", "0.5", "halt past lease", "I6"),
        ("no-unique-fire", "0.15", "kill runner", "I12"),
        ("attempts-at-finish", "0.2", "kill runner,kill worker", "I8"),
    ],
)
def test_one_of_three_short_runs_detects_a_wrong_store(
    tmp_path: Path, wrong: str, minutes: str, faults: str, invariant: str
) -> None:
    words = ("--store", "sqlite", "--minutes", minutes, "--wrong", wrong, "--faults", faults)
    stderr = ""
    # A short run injects two or three faults, and each may miss.
    for seed in ("1", "2", "3"):
        facts = chaos(tmp_path, *words, "--seed", seed)
        assert facts["code"] == bool(broken(facts))
        if invariant in broken(facts):
            return
        stderr = facts["stderr"]
    pytest.fail(stderr)


COUNTS = {"F2", "F3", "F4", "F14"}
"""Invariants that a lost end breaks. The duty that repairs joins reports it under F14, even if the flow ends afterwards."""


@pytest.mark.nightly
def test_one_of_two_short_runs_detects_ends_that_are_counted_in_a_second_transaction(
    postgres_programs: None, tmp_path: Path
) -> None:
    words = ("--store", "postgres", "--minutes", "0.3", "--patience", "90", "--faults", "kill runner")
    stderr = ""
    for seed in ("1", "2"):
        facts = chaos(tmp_path, *words, "--wrong", "two-transactions", "--seed", seed)
        assert facts["code"] == bool(broken(facts))
        if COUNTS & broken(facts):
            return
        stderr = facts["stderr"]
    pytest.fail(stderr)
