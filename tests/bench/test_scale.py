"""The cost model of a fleet: its table, and the command that prints it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.scale_model import FLEETS, Costs, fitted, load_of, step_cost

ROOT = Path(__file__).resolve().parents[2]
MILLION_A_MINUTE = 1_000_000 / 60


@pytest.mark.parametrize(
    ("number", "cores"), [(0, 5.2), (1, 1.1), (2, 12.4), (4, 79.4), (5, 19.6), (6, 5.4), (7, 1.1)]
)
def test_a_fleet_costs_the_sum_of_its_operations(number: int, cores: float) -> None:
    assert round(load_of(FLEETS[number], MILLION_A_MINUTE, Costs()).cores, 1) == cores


def test_larger_steps_cost_less_for_each_job() -> None:
    costs = [step_cost(Costs(), batch) for batch in (1, 10, 500)]
    assert costs == sorted(costs, reverse=True)


def test_a_step_and_a_job_are_fitted_from_two_sizes_of_steps() -> None:
    costs = Costs(step=300.0, job=20.0)
    assert fitted(step_cost(costs, 1), 1, step_cost(costs, 500), 500) == (300.0, 20.0)


def test_the_command_prints_the_table_and_the_open_checks(tmp_path: Path) -> None:
    answer = tmp_path / "scale.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", "--json", str(answer)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "1,000,000 jobs a minute" in done.stdout
    assert "not checked:" in done.stdout
    assert set(json.loads(answer.read_text())["fleets"]) == {fleet.name for fleet in FLEETS}
