"""Public types under mypy and pyright: accepted and rejected calls."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RIGHT, WRONG = HERE / "right.py", HERE / "wrong.py"


def marked(path: Path) -> set[int]:
    return {
        number for number, line in enumerate(path.read_text().splitlines(), 1) if line.endswith("# wrong")
    }


def mypy_lines(path: Path) -> set[int]:
    """The lines with mypy errors."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env=None,
    )
    assert done.returncode in (0, 1), done.stderr
    return {int(match[1]) for match in re.finditer(rf"{path.name}:(\d+): error", done.stdout)}


def pyright_lines(path: Path) -> set[int]:
    """The lines with pyright errors."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "basedpyright",
            "--level",
            "error",
            "--outputjson",
            "--pythonpath",
            sys.executable,
            "--project",
            str(HERE),
            str(path),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}


@pytest.mark.long
def test_mypy_accepts_right_calls_and_rejects_wrong_ones() -> None:
    assert mypy_lines(RIGHT) == set()
    assert mypy_lines(WRONG) == marked(WRONG)


@pytest.mark.long
def test_both_accept_the_examples() -> None:
    for example in sorted((HERE.parents[1] / "examples").glob("*.py")):
        assert mypy_lines(example) == set()
        assert pyright_lines(example) == set()


@pytest.mark.long
def test_pyright_accepts_right_calls_and_rejects_wrong_ones() -> None:
    assert pyright_lines(RIGHT) == set()
    assert pyright_lines(WRONG) == marked(WRONG)
