"""Installs the measured versions of the peers, each in a separate environment.

    python -m bench.peers.install [NAMES] --into FOLDER

Python peers get a virtual environment and pip, Node peers a folder and npm; both use the index that is configured on this machine.
Installed peers are not changed. A peer that cannot be installed is reported and left out; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.peers.listing import ENVIRONMENTS, PEERS, Environment
from tools.pythons import HERE, SUPPORTED, find_python
from tools.terminal import Stop

STAMP = "installed-for-bench"
_PATIENCE = 900.0


class NotInstalled(RuntimeError):
    """A peer cannot be installed; the message says why."""


def ready(environment: Environment, folder: Path) -> bool:
    """Return whether exactly these packages are installed."""
    stamp = folder / environment.name / STAMP
    return stamp.is_file() and stamp.read_text().split() == list(environment.packages)


def interpreter(environment: Environment, folder: Path) -> str:
    """Return the interpreter: that of the environment, or for Node the one of the machine if there is none."""
    place = folder.absolute() / environment.name
    if not environment.node:
        return str(place / "bin" / "python")
    own = place / "node_modules" / ".bin" / "node"
    return str(own) if own.exists() else "node"


def install(environment: Environment, folder: Path) -> None:
    """Install an environment, or raise ``NotInstalled``."""
    place = folder / environment.name
    place.mkdir(parents=True, exist_ok=True)
    if environment.node:
        _install_node(environment, place)
    else:
        _install_python(environment, place)
    (place / STAMP).write_text("\n".join(environment.packages) + "\n")


def _install_python(environment: Environment, place: Path) -> None:
    python = sys.executable if environment.python is None else _newer(environment.python)
    _run([python, "-m", "venv", str(place)], place)
    _run([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *environment.packages], place)


def _newer(least: str) -> str:
    """Return a supported Python of this version or later."""
    if _number(HERE) >= _number(least):
        return sys.executable
    for version in SUPPORTED:
        if _number(version) >= _number(least):
            try:
                return find_python(version)
            except Stop:
                continue
    raise NotInstalled(f"needs Python {least} or newer, which was not found")


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _install_node(environment: Environment, place: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("needs npm, which was not found")
    (place / "package.json").write_text(json.dumps({"private": True}) + "\n")
    words = ["install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    _run([npm, *words, *environment.packages], place)


def _run(command: Sequence[str], place: Path) -> None:
    variables = {
        name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")
    }
    try:
        done = subprocess.run(
            command, cwd=place, env=variables, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NotInstalled(str(problem)) from problem
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise NotInstalled(" / ".join(output[-3:]))


def wanted(names: Sequence[str]) -> list[Environment]:
    """Return the environments of the named peers, each once."""
    if unknown := sorted(set(names) - set(PEERS)):
        raise NotInstalled(f"unknown peer {unknown[0]!r}; expected one of {', '.join(PEERS)}")
    return [ENVIRONMENTS[name] for name in dict.fromkeys(PEERS[name].environment for name in names)]


def install_all(environments: Sequence[Environment], folder: Path) -> list[str]:
    """Install environments one after the other; return the failures, each with its reason."""
    failures = []
    for environment in environments:
        if ready(environment, folder):
            print(f"{environment.name}: already installed", file=sys.stderr, flush=True)
            continue
        print(f"{environment.name}: installing {' '.join(environment.packages)}", file=sys.stderr, flush=True)
        try:
            install(environment, folder)
        except NotInstalled as problem:
            failures.append(f"{environment.name}: {problem}")
            print(f"{environment.name}: not installed: {problem}", file=sys.stderr, flush=True)
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.peers.install", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="peers to install (default: all)")
    parser.add_argument("--into", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args()
    try:
        environments = wanted(options.names or list(PEERS))
    except NotInstalled as problem:
        parser.error(str(problem))
    if failures := install_all(environments, options.into):
        raise SystemExit("left out: " + "; ".join(failure.split(":")[0] for failure in failures))


if __name__ == "__main__":
    main()
