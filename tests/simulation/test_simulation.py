"""Whatever the order of events, the promises hold; a seed always plays the same piece; and what is wrong is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.simulation.__main__ import in_files
from tests.simulation.history import History
from tests.simulation.stage import Killed, Stage
from tests.simulation.world import run
from tests.simulation.wrong import WRONG

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 150
BLOCK = 15
QUICK = 45


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=[pytest.mark.long] * (first > QUICK)) for first in range(1, SEEDS + 1, BLOCK)],
)
def test_no_order_of_events_breaks_a_promise(first: int) -> None:
    broken = {seed: ran.violations for seed in range(first, first + BLOCK) if (ran := run(seed)).violations}
    assert broken == {}, "replay: python -m tests.simulation --trace --seed ..."


@pytest.mark.parametrize("seed", [3, 4])
def test_the_promises_hold_on_a_file_as_well(seed: int, tmp_path: Path) -> None:
    assert run(seed, in_files(str(tmp_path))).violations == ()


def test_a_storm_is_full_of_trouble() -> None:
    """What never happens proves nothing: each kind of trouble is met within a few seeds."""
    seen = "\n".join(line for seed in range(1, 31) for line in run(seed).trace)
    for trouble in (
        "kill", "pause", "cut", "stop", "is refused", "the answer to finish is lost", "the answer to claim is lost",
        "finish again arrives late", "claim arrives late", "LOST", "has lost its lease", "the answer to transaction is lost",
        "failed", "timed_out", "cancelled", "scheduled", "waiting",
    ):  # fmt: skip
        assert trouble in seen, trouble


def test_the_same_seed_plays_the_same_piece() -> None:
    first, second = run(5), run(5)
    assert first.trace == second.trace
    assert len(first.trace) > 100
    assert run(6).trace != first.trace


def test_the_same_seed_plays_the_same_piece_in_another_process() -> None:
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
def test_a_store_that_is_wrong_on_purpose_is_found(name: str) -> None:
    kind, promise = WRONG[name]
    for seed in range(1, SEEDS + 1):
        found = run(seed, kind)
        if found.violations:
            assert found.violations[0].startswith(promise), found.violations
            assert run(seed, kind) == found, "and the seed shows it again"
            return
    pytest.fail(f"{name}: nothing was found in {SEEDS} seeds")


def test_a_seed_that_breaks_a_promise_is_printed_with_its_replay() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.simulation",
            "--seeds",
            "2",
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


def test_an_actor_that_is_held_gets_no_turn_and_one_that_is_killed_goes_no_further() -> None:
    stage, said = Stage(1), list[str]()

    def speak(word: str) -> None:
        try:
            while True:
                said.append(word)
                stage.sleep(1.0)
        except Killed:
            said.append(f"{word} dies")
            raise

    def steer() -> None:
        stage.sleep(0.5)
        stage.hold([first], 10.0)
        stage.sleep(3.0)
        stage.kill([second])

    first = stage.enter("first", lambda: speak("a"))
    second = stage.enter("second", lambda: speak("b"))
    stage.enter("steer", steer)
    try:
        assert stage.play(until=lambda: stage.seconds > 5, most=100)
        assert sorted(said[:2]) == ["a", "b"]
        assert said[2:] == ["b", "b", "b", "b dies", "a"]
    finally:
        stage.close()


def test_what_an_actor_raises_reaches_whoever_plays() -> None:
    stage = Stage(1)

    def stumble() -> None:
        raise ZeroDivisionError

    stage.enter("clumsy", stumble)
    try:
        with pytest.raises(ZeroDivisionError):
            stage.play(until=lambda: False, most=1)
    finally:
        stage.close()


def test_a_history_names_the_promise_that_is_broken() -> None:
    stage = Stage(1)
    history = History(stage, {})
    history.broken("I1", "a job is gone")
    assert history.violations == ["I1: a job is gone"]
    assert stage.trace[-1].endswith("BROKEN I1: a job is gone")
