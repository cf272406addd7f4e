"""Terminal output and quiet subprocesses of the contributor tools.

Standard library only: ``dev.py`` imports this module before any environment exists.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE, STDOUT

ROOT = Path(__file__).resolve().parents[1]


class Stop(Exception):
    """Ends the program with a one-line message; ``code`` is 2 when the command line was wrong."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def colour() -> bool:
    """Whether the terminal shows colours and the user wants them."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


def paint(text: str, code: str) -> str:
    """The text in an ANSI colour, or unchanged without a colour terminal."""
    return f"\033[{code}m{text}\033[0m" if colour() else text


def heading(text: str) -> None:
    """Print what happens next."""
    print(paint("── " + text, "1;36"), flush=True)


def last_line(text: str) -> str:
    """The last line that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def quietly(command: Sequence[str], env: dict[str, str]) -> tuple[int, str]:
    """Run a program and return its exit code and its output."""
    done = subprocess.run(command, env=env, cwd=ROOT, check=False, stdout=PIPE, stderr=STDOUT)
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()
