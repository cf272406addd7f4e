"""``dev.py test``: pytest, in parallel, and with branch coverage on request."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tools.environment import Environment, become
from tools.terminal import ROOT, heading

# A run with one of these arguments stays in one process. With -k, collecting all tests once is faster than
# collecting them in every worker.
_SINGLE = ("-n", "--numprocesses", "--pdb", "--trace", "-k", "--collect-only", "--co")


# More failures than this are no accident of a busy machine, and nothing runs again.
_RERUN_AT_MOST = 5
_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def parallel(arguments: list[str]) -> list[str]:
    """The arguments that spread a run over the cores, unless the run is small or chooses for itself."""
    if any(argument.startswith(_SINGLE) or "::" in argument for argument in arguments):
        return []
    # Many tests only wait, so one process more than there are cores. An idle process takes tests from a busy one; in
    # fixed shares, the last long tests would run one after the other in one process.
    return ["-n", str(min(8, (os.cpu_count() or 2) + 1)), "--dist", "worksteal"]


def run(
    env: Environment, arguments: list[str], *, every: bool, nightly: bool, coverage: bool, rerun: bool
) -> int:
    """Run pytest with these arguments."""
    every = every or nightly
    heading(f"tests on Python {env.version}" + (", every service required" if every else ""))
    chosen = [*parallel(arguments), *arguments]
    extra = {"TIDEMILL_TEST_ALL": "1"} if every else {}
    if nightly:
        extra["TIDEMILL_TEST_NIGHTLY"] = "1"
    if coverage:
        return measured(env, chosen, extra)
    if rerun:
        return run_again(env, chosen, extra)
    return become(env, str(env.python), "-m", "pytest", *chosen, **extra)


def run_again(env: Environment, arguments: list[str], extra: dict[str, str]) -> int:
    """Run pytest, then run the few tests that failed once more, one by one and without other tests beside them.

    A test that passes alone is unstable, which is a defect of the test or of the code. The run names it.
    """
    variables = dict(env.variables(), **extra)
    command = [str(env.python), "-m", "pytest"]
    outcome = subprocess.call([*command, "--cache-clear", *arguments], cwd=ROOT, env=variables)
    failed = sorted(json.loads((ROOT / _FAILED).read_text())) if (ROOT / _FAILED).is_file() else []
    if outcome != 1 or not 0 < len(failed) <= _RERUN_AT_MOST:
        return outcome
    heading(f"UNSTABLE OR BROKEN: {len(failed)} failed beside other tests and run again alone")
    print(*failed, sep="\n", flush=True)
    return subprocess.call([*command, "-p", "no:xdist", *failed], cwd=ROOT, env=variables)


def measured(env: Environment, arguments: list[str], extra: dict[str, str]) -> int:
    """Run pytest under coverage, subprocesses included, then print the report and write ``htmlcov``."""
    variables = dict(env.variables(), **extra)
    tool = [str(env.python), "-m", "coverage"]

    def call(*command: str) -> int:
        return subprocess.call([*tool, *command], cwd=ROOT, env=variables)

    call("erase")
    outcome = call("run", "-m", "pytest", *arguments)
    # Killed processes leave unreadable data files; combine ignores them and continues.
    call("combine", "--quiet")
    call("html", "--quiet")
    reported = call("report", "--skip-covered", "--sort=cover")
    return outcome or reported
