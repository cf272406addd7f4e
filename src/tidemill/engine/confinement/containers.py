"""Containers for jobs, through the command line of docker or podman."""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from tidemill.errors import BadSettings
from tidemill.tasks.confinement import Container

_log = logging.getLogger("tidemill.engine")

RUNTIMES = ("podman", "docker")
LABEL = "tidemill.runner"
"""Label of our containers: the machine and the process id of their runner, with its start time."""

_ANSWER = 20.0  # seconds for an answer of the runtime
_TRIAL = 60.0  # seconds for a container that only starts Python
_LAST = 300  # characters of an error
_VERSION = "import tidemill; print(tidemill.__version__)"


def runtime_of(given: Container) -> str:
    """The command of a runtime that works. Raise ``BadSettings`` if there is none."""
    runtime = working_runtime(given.runtime)
    if runtime is None:
        raise BadSettings(f"jobs in containers cannot run here: {missing_runtime(given.runtime)}")
    return runtime


def working_runtime(name: str | None) -> str | None:
    """The command of a runtime that answers, or None."""
    return next((path for path, problem in _looks(name) if problem is None), None)


def missing_runtime(name: str | None) -> str:
    """The problems of the runtimes, in words."""
    problems = [f"{path}: {problem}" for path, problem in _looks(name) if problem is not None]
    return "; ".join(problems)


@lru_cache(maxsize=8)
def _looks(name: str | None) -> tuple[tuple[str, str | None], ...]:
    return tuple(_look(one) for one in (RUNTIMES if name is None else (name,)))


def _look(name: str) -> tuple[str, str | None]:
    path = shutil.which(name)
    if path is None:
        return name, "this command is not installed"
    try:
        done = _run(path, ["version", "--format", "json"])
    except (OSError, subprocess.TimeoutExpired) as error:
        return path, f"it does not answer: {error}"
    if done.returncode:
        return path, (done.stderr.strip().splitlines() or ["it does not answer"])[-1][:300]
    return path, None


def _run(
    runtime: str, words: Sequence[str], seconds: float = _ANSWER, folder: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  (the runtime that the worker's owner installed)
        [runtime, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
        cwd=folder,
    )


@lru_cache(maxsize=64)
def container_problem(given: Container) -> str | None:
    """Run a container of the image once; return why jobs cannot run in it here, or None."""
    runtime = working_runtime(given.runtime)
    if runtime is None:
        return missing_runtime(given.runtime)
    name = new_name()
    command = run_command(given, runtime, name, {})[1:]
    try:
        # Podman's monitor writes a file into its working directory when a container exceeds its memory.
        with tempfile.TemporaryDirectory(prefix="tidemill-container-") as folder:
            done = _run(runtime, [*command, given.python, "-c", _VERSION], _TRIAL, folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        remove(runtime, [name])
        return f"the trial of a container of the image {given.image} failed: {error}"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ended with code {done.returncode}"]
        return f"a container of the image {given.image} cannot run: {lines[-1][-_LAST:]}"
    there, here = done.stdout.strip(), sys.modules["tidemill"].__version__
    if there != here:
        return f"the image {given.image} has Tidemill {there[:40]}, and this worker has {here}"
    return None


def new_name() -> str:
    """A name for a container."""
    return f"tidemill-{os.getpid()}-{secrets.token_hex(6)}"


def run_command(given: Container, runtime: str, name: str, env: Mapping[str, str]) -> list[str]:
    """The command that runs a container, up to the image."""
    limits = {"--memory": given.memory, "--cpus": given.cpus, "--pids-limit": given.processes}
    return [
        runtime,
        "run",
        "--rm",
        "--interactive",
        f"--name={name}",
        f"--label={LABEL}={runner_label(os.getpid())}",
        f"--network={given.network}",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--pull=never",
        *(f"{option}={value}" for option, value in limits.items() if value is not None),
        *(f"--volume={path}:{path}:ro" for path in given.files),
        *(f"--volume={path}:{path}" for path in given.writable),
        *(f"--env={key}={value}" for key, value in env.items() if key in given.env),
        *given.options,
        given.image,
    ]


def runner_label(pid: int) -> str:
    """The name of a runner process that no other process on any machine ever has."""
    return f"{os.uname().nodename}/{_boot()}/{pid}/{_started(pid)}"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "-"


def _started(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return "-"


def _is_gone(label: str) -> bool:
    """Whether a label names a runner of this machine that no longer runs."""
    machine, _, rest = label.partition("/")
    boot, _, process = rest.partition("/")
    pid, _, started = process.partition("/")
    if machine != os.uname().nodename or not pid.isdigit():
        return False
    return boot != _boot() or _started(int(pid)) != started


def remove(runtime: str, names: Sequence[str]) -> None:
    """Kill and remove containers. Those that are gone already are no error."""
    try:
        done = _run(runtime, ["rm", "--force", *names])
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.error("cannot remove the containers %s: %s", ", ".join(names), error)
        return
    if done.returncode and "no such container" not in done.stderr.lower():
        _log.warning("cannot remove the containers %s: %s", ", ".join(names), done.stderr.strip()[:300])


def remove_leftovers(runtime: str) -> list[str]:
    """Remove the containers of runners of this machine that were killed. Returns their names."""
    try:
        listed = _run(runtime, ["ps", "--all", f"--filter=label={LABEL}", "--format=json"])
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.error("cannot list the containers of %s: %s", runtime, error)
        return []
    names = [name for name, label in _containers(listed.stdout) if _is_gone(label)]
    if names:
        _log.warning("removing %d containers of runners that are gone", len(names))
        remove(runtime, names)
    return names


def _containers(text: str) -> list[tuple[str, str]]:
    """Names and labels. Podman prints one list, and docker one object per line with the labels as text."""
    try:
        listed = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else [json.loads(line) for line in text.splitlines()]
        )
    except ValueError:
        return []
    containers = []
    for row in listed or ():
        names, labels = row.get("Names"), row.get("Labels")
        name = names[0] if isinstance(names, list) and names else names
        if isinstance(labels, str):
            labels = dict(pair.partition("=")[::2] for pair in labels.split(","))
        if isinstance(name, str) and isinstance(labels, dict) and isinstance(labels.get(LABEL), str):
            containers.append((name, labels[LABEL]))
    return containers
