"""Tests of the simulation: invariants, determinism, and detection of wrong stores."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.__main__ import in_files
from tests.simulation.history import History
from tests.simulation.simulation import run
from tests.simulation.simulator import Killed, Simulator
from tests.simulation.wrong_stores import WRONG

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 150
BLOCK = 15
QUICK = 45


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=[pytest.mark.long] * (first > QUICK)) for first in range(1, SEEDS + 1, BLOCK)],
)
def test_no_order_of_events_violates_an_invariant(first: int) -> None:
    broken = {
        seed: result.violations for seed in range(first, first + BLOCK) if (result := run(seed)).violations
    }
    assert broken == {}, "replay: python -m tests.simulation --trace --seed ..."


@pytest.mark.parametrize("seed", [3, 4])
def test_the_invariants_hold_on_sqlite(seed: int, tmp_path: Path) -> None:
    assert run(seed, in_files(str(tmp_path))).violations == ()


def test_every_kind_of_fault_occurs() -> None:
    """A fault that never happens proves nothing: each kind must occur within a few seeds."""
    seen = "\n".join(line for seed in range(1, 31) for line in run(seed).trace)
    for event in (
        "kill", "pause", "cut", "stop", "is refused", "the response to finish is lost", "the response to claim is lost",
        "finish again arrives late", "claim arrives late", "LOST", "has lost its lease", "the response to transaction is lost",
        "failed", "timed_out", "cancelled", "scheduled", "waiting", "halt_heartbeat", "the store's clock is off by +300",
        "the store's clock is off by -300", "the store goes back in time",
    ):  # fmt: skip
        assert event in seen, event


def test_a_seed_is_deterministic() -> None:
    first, second = run(5), run(5)
    assert first.trace == second.trace
    assert len(first.trace) > 100
    assert run(6).trace != first.trace


def test_a_seed_is_deterministic_across_processes() -> None:
    here = run(5)
    there = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "5"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert here.digest in there.stdout


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_store_is_detected(name: str) -> None:
    kind, invariant = WRONG[name]
    for seed in range(1, SEEDS + 1):
        result = run(seed, kind)
        if result.violations:
            assert result.violations[0].startswith(invariant), result.violations
            assert run(seed, kind) == result, "the same seed must reproduce the violation"
            return
    pytest.fail(f"{name}: no violation in {SEEDS} seeds")


def test_a_violating_seed_is_printed_with_its_replay_command() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.simulation",
            "--seeds",
            "8",
            "--wrong",
            "attempts counted at the finish",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1
    assert "replay: python -m tests.simulation --seed " in done.stdout


def test_held_actors_get_no_turn_and_killed_actors_stop() -> None:
    simulator, events = Simulator(1), list[str]()

    def act(name: str) -> None:
        try:
            while True:
                events.append(name)
                simulator.sleep(1.0)
        except Killed:
            events.append(f"{name} dies")
            raise

    def control() -> None:
        simulator.sleep(0.5)
        simulator.hold([first], 10.0)
        simulator.sleep(3.0)
        simulator.kill([second])

    first = simulator.enter("first", lambda: act("a"))
    second = simulator.enter("second", lambda: act("b"))
    simulator.enter("control", control)
    try:
        assert simulator.play(until=lambda: simulator.seconds > 5, most=100)
        assert sorted(events[:2]) == ["a", "b"]
        assert events[2:] == ["b", "b", "b", "b dies", "a"]
    finally:
        simulator.close()


def test_an_exception_of_an_actor_reaches_the_caller() -> None:
    simulator = Simulator(1)

    def fail() -> None:
        raise ZeroDivisionError

    simulator.enter("failing", fail)
    try:
        with pytest.raises(ZeroDivisionError):
            simulator.play(until=lambda: False, most=1)
    finally:
        simulator.close()


def test_a_history_names_the_violated_invariant() -> None:
    simulator = Simulator(1)
    history = History(simulator, {})
    history.broken("I1", "a job is lost")
    assert history.violations == ["I1: a job is lost"]
    assert simulator.trace[-1].endswith("BROKEN I1: a job is lost")
