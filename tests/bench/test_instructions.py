"""The load of the instruction benchmark, without valgrind, and the refusal of bad options."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOAD = ROOT / "bench" / "instructions_load.py"
JOBS = 30


def run(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_load_drains_every_job(kind: str, tmp_path: Path) -> None:
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'load.db'}"
    filled = run(LOAD, "fill", url, JOBS)
    assert filled.returncode == 0, filled.stderr
    drained = run(LOAD, "drain", url, JOBS, 10)
    assert drained.returncode == 0, drained.stderr
    assert json.loads(drained.stdout)["cpu"] > 0


def test_bytecode_is_counted_by_function_and_compared_with_a_base() -> None:
    options = ("--base", ROOT, "--count", "bytecode", "--stores", "sqlite", "--jobs", JOBS * 10, "--json")
    counted = run("-m", "bench.instructions", *options)
    assert counted.returncode == 0, counted.stderr
    here, base = json.loads(counted.stdout)["bytecode"]["sqlite"].values()
    assert here[0]["bytecode"] > 100
    # Both are this version, and so few jobs leave room for the threads.
    assert 0.8 < here[0]["bytecode"] / base[0]["bytecode"] < 1.25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--stores", "oracle"), "unknown store 'oracle'; expected one of memory, sqlite, postgres"),
        (("--base", "docs"), "docs is not a checkout of Tidemill"),
        (("--count", "seconds"), "unknown figure 'seconds'; expected one of cpu, bytecode, instructions"),
    ],
)
def test_bad_options_are_refused(options: tuple[str, ...], message: str) -> None:
    refused = run("-m", "bench.instructions", *options)
    assert refused.returncode == 2
    assert message in refused.stderr
