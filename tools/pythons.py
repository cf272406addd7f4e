"""Search for Python interpreters of the supported versions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.terminal import ROOT, Stop

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
BIN = "Scripts" if os.name == "nt" else "bin"
HERE = "{}.{}".format(*sys.version_info[:2])


def probe(python: str) -> str | None:
    """The X.Y of an interpreter, or None if it does not run: pyenv has shims without an interpreter."""
    command = [python, "-c", "import sys; print('{}.{}'.format(*sys.version_info[:2]))"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def candidates(version: str) -> Iterator[str]:
    """Paths where an interpreter X.Y may be, the nearest first."""
    if version == HERE:
        yield sys.executable
    if on_path := shutil.which("python" + version):
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    patches = [d for d in pyenv.glob(version + ".*") if d.name.rpartition(".")[2].isdigit()]
    for folder in sorted(patches, key=lambda d: int(d.name.rpartition(".")[2]), reverse=True):
        yield str(folder / "bin" / "python")
    if uv := shutil.which("uv") or shutil.which("uv", path=str(ROOT / ".venv" / BIN)):
        ask = [uv, "python", "find", "--system", "--no-python-downloads", "--no-project", version]
        found = subprocess.run(ask, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            yield found.stdout.strip()


def find_python(version: str) -> str:
    """The path of an interpreter of this version."""
    for python in candidates(version):
        if probe(python) == version:
            return python
    raise Stop(
        f"no Python {version} found: looked for python{version} on PATH, in pyenv's versions and with uv; "
        f"`uv python install {version}` or `pyenv install {version}` installs one"
    )


def refuse_unsupported() -> None:
    """End the program if this Python is not supported, and name one that is."""
    if HERE not in SUPPORTED:
        others = (p for version in reversed(SUPPORTED) for p in candidates(version) if probe(p) == version)
        hint = next((f"; try: {python} dev.py" for python in others), "")
        raise Stop(f"Python {SUPPORTED[0]} to {SUPPORTED[-1]} is needed, and this is {HERE}{hint}")
