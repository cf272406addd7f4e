"""``dev.py check``: format, lint, types, layers and house rules, in parallel."""

from __future__ import annotations

import concurrent.futures
import time

from tools import sentences
from tools.environment import Environment
from tools.terminal import ROOT, colour, heading, paint, quietly

TYPED = ("src", "tests", "tools", "bench", "examples", "dev.py")


def fix(env: Environment) -> None:
    """Apply the automatic fixes of the linter, format the code, and put each sentence of a page on its own line."""
    python = str(env.python)
    quietly([python, "-m", "ruff", "check", "--fix-only", "."], env.variables())
    quietly([python, "-m", "ruff", "format", "."], env.variables())
    sentences.fix()


def checks(env: Environment) -> dict[str, list[str]]:
    """The command of each check."""
    python = str(env.python)
    typed = [part for part in TYPED if (ROOT / part).exists()]
    return {
        "ruff format": [python, "-m", "ruff", "format", "--check", "."],
        "ruff check": [python, "-m", "ruff", "check", "."],
        "mypy --strict": [python, "-m", "mypy", "--strict", *typed],
        "lint-imports": [str(env.bin / "lint-imports"), "--no-cache"],
        "house tests": [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "tests/house"],
    }


def run(env: Environment) -> int:
    """Run every check at the same time, print a line for each, and return the highest exit code."""
    tools = checks(env)
    forced = {"FORCE_COLOR": "1", "MYPY_FORCE_COLOR": "1", "CLICOLOR_FORCE": "1"} if colour() else {}
    variables = dict(env.variables(), **forced)

    def one(command: list[str]) -> tuple[int, str, float]:
        began = time.monotonic()
        return (*quietly(command, variables), time.monotonic() - began)

    worst, failures = 0, []
    with concurrent.futures.ThreadPoolExecutor(len(tools)) as pool:
        running = {pool.submit(one, command): name for name, command in tools.items()}
        for future in concurrent.futures.as_completed(running):
            name, (code, output, seconds) = running[future], future.result()
            mark = paint("✗", "31") if code else paint("✓", "32")
            print(f"{mark} {name:<14} {seconds:5.1f} s", flush=True)
            if code:
                worst = max(worst, abs(code))
                failures.append((name, output))
    for name, output in failures:
        heading(name)
        print(output)
    return worst
