"""``dev.py lowest``: tests with the oldest versions of all dependencies that the project accepts."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

from tools.environment import Environment, dev_group
from tools.packages import names_of
from tools.terminal import ROOT, Stop, heading

TESTS = (
    "tests/tasks", "tests/client/test_enqueue.py", "tests/client/test_handles.py", "tests/client/test_secrets.py",
    "tests/client/test_calendars.py", "tests/engine/test_execute.py", "tests/engine/test_worker.py", "tests/testing",
    "tests/stores/test_postgres_driver.py", "tests/stores/test_wakeup_bus.py", "tests/engine/test_hub.py",
    "tests/delivery/test_intake.py", "tests/delivery/test_notifications.py", "tests/archive",
    "tests/interfaces/test_cli_jobs.py", "tests/interfaces/test_cli_help.py", "tests/interfaces/rest/test_jobs.py",
    "tests/interfaces/dashboard/test_jobs.py", "tests/interfaces/dashboard/test_single_sign_on.py", "tests/contrib",
    "tests/house/test_extras.py",
)  # fmt: skip
"""Tests that use every dependency, of the core and of each extra."""


def run(env: Environment, arguments: list[str]) -> int:
    """Install the oldest versions into a separate environment, and run pytest there."""
    uv = env.get_uv()
    if not uv:
        raise Stop("there is no uv for this platform, and only uv can choose the oldest versions")
    place = ROOT / f".venv-lowest-{env.version}"
    python = place / env.bin.name / env.python.name
    versions = _install(env, uv, place, python)
    heading(f"tests with {', '.join(versions)}")
    chosen = arguments or [*TESTS, "-q", "-n", str(min(4, os.cpu_count() or 1))]
    # The plug-in of an older anyio does not load in the pytest of the tests, and no test uses it.
    # Old versions of one package may use what newer versions of another deprecate.
    command = [str(python), "-m", "pytest", "-p", "no:anyio", "-W", "default::DeprecationWarning", *chosen]
    return subprocess.call(command, cwd=ROOT, env=env.variables())


def _install(env: Environment, uv: str, place: Path, python: Path) -> list[str]:
    """Install all extras at the oldest versions and the test tools; return the oldest versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    whole = f".[{','.join(sorted(extras))}]"
    direct = names_of([*project["dependencies"], *(line for lines in extras.values() for line in lines)])
    install = [uv, "pip", "install", "--quiet", "--python", str(python)]
    oldest = [*install, "--resolution", "lowest-direct", "-e", whole]
    for command in ([uv, "venv", "--quiet", "--clear", "--python", str(env.python), str(place)], oldest):
        if failed := env.attempt(command):
            raise Stop(failed)
    frozen = subprocess.run(
        [uv, "pip", "freeze", "--python", str(python)], capture_output=True, text=True, check=True
    ).stdout
    versions = [line for line in frozen.splitlines() if "==" in line and names_of([line]) <= direct]
    pins = place / "oldest.txt"
    # Other tools may need newer versions of our dependencies than the oldest ones, so only pytest itself is pinned.
    usual = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    others = [line for line in usual if line.startswith(("pytest", "hypothesis"))]
    pins.write_text("\n".join([*versions, *others]), encoding="utf-8")
    tools = [line for line in dev_group() if not names_of([line]) & direct]
    if failed := env.attempt([*install, "-c", str(pins), "-e", whole, *tools]):
        raise Stop(failed)
    return versions
