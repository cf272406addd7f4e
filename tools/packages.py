"""``dev.py build``: the wheel and the source archive, checked and installed into a clean environment."""

from __future__ import annotations

import email
import email.message
import json
import re
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from tools.environment import Environment, package_version
from tools.terminal import ROOT, Stop

PACKAGE = ROOT / "src" / "tidemill"

FIRST_JOB = """
import json, sys, time
began = time.perf_counter()
import tidemill
imported = time.perf_counter() - began
from tidemill import App

app = App("sqlite:///first.db", migrate=True)


@app.task
def double(n: int) -> int:
    return n * 2


with app, app.worker():
    result = double.enqueue(n=21).result(timeout=60)
print(json.dumps({"import": imported, "result": result, "version": tidemill.__version__, "at": tidemill.__file__}))
"""
"""The first program of a new user."""


class Built(NamedTuple):
    """The files of a release."""

    wheel: Path
    sdist: Path


class Installed(NamedTuple):
    """A clean environment with the wheel: its packages, and what the first program found."""

    packages: list[str]  #: ``name==version``, without tidemill itself
    import_time: float  #: seconds, the second time
    result: int
    version: str


def build(env: Environment, folder: Path) -> Built:
    """Build the source archive, and the wheel from that archive."""
    uv = _uv(env)
    shutil.rmtree(folder, ignore_errors=True)
    if failed := env.attempt([uv, "build", "--quiet", "--out-dir", str(folder), str(ROOT)]):
        raise env.diagnosis(failed)
    (wheel,), (sdist,) = list(folder.glob("*.whl")), list(folder.glob("*.tar.gz"))
    return Built(wheel, sdist)


def mistakes(built: Built) -> list[str]:
    """Everything that is wrong with the names, the metadata and the contents of the files."""
    version = package_version()
    found = []
    expected = (f"tidemill-{version}-py3-none-any.whl", f"tidemill-{version}.tar.gz")
    if (built.wheel.name, built.sdist.name) != expected:
        found.append(
            f"the files are {built.wheel.name} and {built.sdist.name}, expected {' and '.join(expected)}"
        )
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
        found += _wheel_mistakes(names, version)
        metadata = email.message_from_bytes(wheel.read(f"tidemill-{version}.dist-info/METADATA"))
        found += _metadata_mistakes(metadata, version)
        if (
            "tidemill = tidemill.cli:main"
            not in wheel.read(f"tidemill-{version}.dist-info/entry_points.txt").decode()
        ):
            found.append("the wheel has no command tidemill")
    with tarfile.open(built.sdist) as sdist:
        files = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    wanted = (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "PKG-INFO",
        "dev.py",
        "tests/conftest.py",
    )
    found += [f"the source archive has no {name}" for name in wanted if name not in files]
    return found


def _wheel_mistakes(names: set[str], version: str) -> list[str]:
    """Compare the contents with the package in the checkout."""
    info = f"tidemill-{version}.dist-info/"
    source = {
        f"tidemill/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    files = {name for name in names if not name.startswith(info)}
    found = [f"the wheel has no {name}" for name in sorted(source - files)[:5]]
    found += [f"the wheel has {name}, which the package does not have" for name in sorted(files - source)[:5]]
    if f"{info}licenses/LICENSE" not in names:
        found.append("the wheel has no licence")
    return found


def _metadata_mistakes(metadata: email.message.Message, version: str) -> list[str]:
    expected = {
        "Name": "tidemill",
        "Version": version,
        "License-Expression": "MIT",
        "Requires-Python": ">=3.11",
        "Description-Content-Type": "text/markdown",
    }
    found = [
        f"{name} is {metadata[name]!r}, expected {value!r}"
        for name, value in expected.items()
        if metadata[name] != value
    ]
    if not str(metadata.get_payload()).startswith("# Tidemill"):
        found.append("the description is not the README")
    return found


def try_out(env: Environment, wheel: Path, folder: Path, *, lowest: bool = False) -> Installed:
    """Install the wheel alone into a new environment in a folder, and run a first job there.

    ``lowest`` installs the oldest versions that the project accepts.
    """
    uv, place = _uv(env), folder / "venv"
    python = place / env.bin.name / env.python.name
    if failed := env.attempt([uv, "venv", "--quiet", "--python", str(env.python), str(place)]):
        raise Stop(failed)
    resolution = ["--resolution", "lowest-direct"] if lowest else []
    if failed := env.attempt(
        [uv, "pip", "install", "--quiet", "--python", str(python), *resolution, str(wheel)]
    ):
        raise env.diagnosis(failed)
    frozen = subprocess.run(
        [uv, "pip", "freeze", "--python", str(python)], capture_output=True, text=True, check=True
    ).stdout
    packages = [line for line in frozen.splitlines() if not line.startswith("tidemill")]
    program = folder / "first.py"
    program.write_text(FIRST_JOB, encoding="utf-8")
    _run(python, program)  # compiles the modules
    facts = json.loads(_run(python, program).splitlines()[-1])
    if not Path(facts["at"]).is_relative_to(place):
        raise Stop(f"the program imported {facts['at']} instead of the installed package")
    return Installed(packages, facts["import"], facts["result"], facts["version"])


def _run(python: Path, program: Path) -> str:
    """Run the first program in its folder with a new database; return its output."""
    done = subprocess.run(
        [str(python), str(program)],
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise Stop(f"the first program failed: {done.stderr[-2000:]}")
    (program.parent / "first.db").unlink()
    return done.stdout


def names_of(requirements: list[str]) -> set[str]:
    """The normalised names of requirements such as ``psycopg[binary]>=3.3``."""
    return {
        re.sub(r"[-_.]+", "-", re.split(r"[\[<>=;~! @]", requirement)[0]).lower()
        for requirement in requirements
    }


def _uv(env: Environment) -> str:
    if uv := env.get_uv():
        return uv
    raise Stop("there is no uv for this platform, and only uv builds here")
