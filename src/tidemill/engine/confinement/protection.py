"""Kinds of confinement that this system can provide."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from typing import NamedTuple

from tidemill.engine.confinement import containers
from tidemill.tasks.confinement import Confinement, Container, Sandbox

_TRIAL = 60.0  # seconds
_LAST = 300  # characters of an error


class Protection(NamedTuple):
    """Whether this system can run jobs in one kind of confinement, and why not."""

    name: str
    problem: str | None  #: None if it can
    note: str  #: the means of protection, or advice


@lru_cache(maxsize=1)
def sandbox_problem() -> str | None:
    """Try a sandbox with everything that it needs; return why it fails, or None."""
    if sys.platform != "linux":
        return f"a sandbox needs Linux, and this system is {sys.platform}"
    command = [sys.executable, "-m", "tidemill.engine.confinement.trial"]
    try:
        done = subprocess.run(  # noqa: S603  (our own interpreter and module)
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TRIAL, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the trial of a sandbox failed: {error}"
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    reason = (lines[-1] if lines else f"the trial of a sandbox ended with code {done.returncode}")[-_LAST:]
    return f"the system gives this user no namespaces ({reason})" if "unshare" in reason else reason


def missing_protection(given: Confinement | None) -> str | None:
    """Why this system cannot confine jobs in this way, or None."""
    match given:
        case Sandbox():
            return sandbox_problem()
        case Container():
            return containers.container_problem(given)
        case _:
            return None


def refusal(given: Confinement | None) -> str | None:
    """Why a worker here must not claim jobs with this confinement, or None."""
    problem = missing_protection(given)
    return None if isinstance(given, Sandbox) and not given.strict else problem


SANDBOX_ADVICE = (
    "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, "
    "kernel.apparmor_restrict_unprivileged_userns; in a container: a seccomp profile that allows unshare and mount)"
)


CONTAINER_ADVICE = "install and start podman or docker on the machines of the workers"


def advice(given: Confinement | None) -> str:
    """What to change so that a worker here can confine jobs in this way."""
    return SANDBOX_ADVICE if isinstance(given, Sandbox) else CONTAINER_ADVICE


def protections() -> list[Protection]:
    """The kinds of confinement, for reports."""
    sandbox = sandbox_problem()
    runtime = containers.working_runtime(None)
    return [
        Protection(
            "sandbox",
            sandbox,
            "user, process, mount, network and IPC namespaces, resource limits and a filter of system calls"
            if sandbox is None
            else SANDBOX_ADVICE,
        ),
        Protection(
            "container",
            None if runtime else containers.missing_runtime(None),
            f"through {runtime}" if runtime else CONTAINER_ADVICE,
        ),
    ]
