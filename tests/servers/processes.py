"""Service programs for tests: never run as root, and always stopped.

They are stopped even if the test run itself is killed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tidemill.clock import SystemClock

# Reads one line from its input. A line means a regular end. If the input ends without one, the parent process is dead: then the
# script stops the program in the pid file and removes its folders.
_GUARD = r"""
if read -r line; then exit 0; fi
program=$1 pid_file=$2
shift 2
pid=$(head -n 1 "$pid_file" 2>/dev/null)
if [ -n "$pid" ] && [ "$(ps -o comm= -p "$pid" 2>/dev/null || cat "/proc/$pid/comm" 2>/dev/null)" = "$program" ]; then
    kill -INT "$pid" 2>/dev/null
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.2
    done
    kill -QUIT "$pid" 2>/dev/null
fi
rm -rf -- "$@"
"""

_NOBODY = "nobody"

HEIRS: dict[int, int] = {}
"""The previous pid of each restarted service by its new one, so that checks for leaked processes recognise it."""


def ancestry(pid: int) -> set[int]:
    """A pid with the pids of its predecessors."""
    found = {pid}
    while (before := HEIRS.get(pid)) is not None and before not in found:
        found.add(pid := before)
    return found


class ServiceMissing(RuntimeError):
    """A service cannot be started here; the message contains the cause and a remedy."""


@functools.cache
def namespaces_work() -> bool:
    """Whether root may become an ordinary user in a user namespace, which needs no account and no chown."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    trial = [unshare, "--user", "--map-user=1000", "--map-group=1000", "true"]
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0


class Launcher:
    """Runs programs that refuse root: directly, in a user namespace, or as the user ``nobody``."""

    def __init__(self) -> None:
        self.root = os.name == "posix" and os.geteuid() == 0
        self.namespace = self.root and namespaces_work()
        self.nobody = self.root and not self.namespace

    def give(self, folder: Path) -> None:
        """Make the program's user the owner of a folder."""
        if self.nobody:
            shutil.chown(folder, user=_NOBODY)

    def start(
        self, command: Sequence[str], log: Path, *, env: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program in its own session, so that Ctrl-C at the terminal does not reach it first."""
        if self.namespace:
            command = ["unshare", "--user", "--map-user=1000", "--map-group=1000", *command]
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=log.parent,
                env=env,
                start_new_session=True,
                user=_NOBODY if self.nobody else None,
                extra_groups=[] if self.nobody else None,
            )

    def run(self, command: Sequence[str], log: Path) -> int:
        """Run a program to its end; returns its exit code."""
        return self.start(command, log).wait()


class ProcessGuard:
    """A watchdog: if this process dies unexpectedly, it stops the guarded program and removes its folders."""

    def __init__(self, program: str, pid_file: Path, folders: Sequence[Path]) -> None:
        words = ["/bin/sh", "-c", _GUARD, "guard", program, str(pid_file), *map(str, folders)]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def release(self) -> None:
        """End the watchdog after a regular end."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(b"done\n")
                self._process.stdin.flush()
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()


def end(process: subprocess.Popen[bytes], first: signal.Signals, *, patience: float = 15.0) -> int:
    """End a child process, first with the given signal, then with stronger ones. Returns its exit code."""
    for sign, seconds in ((first, patience), (signal.SIGQUIT, 5.0), (signal.SIGKILL, None)):
        if process.poll() is None:
            process.send_signal(sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(seconds)
    raise AssertionError("a killed process can be waited for")


def free_port() -> int:
    """A loopback port that is currently free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(port: int, process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until the process listens on its port; False if it ended or took too long."""
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while clock.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.01)
            return False
    return False


def child_pids(parent: int) -> dict[int, str]:
    """The live children of a process with their command lines, without zombies."""
    if parent == os.getpid() and not _have_children():
        return {}
    return _children_from_proc(parent) if Path("/proc/self/stat").exists() else _children_from_ps(parent)


def _have_children() -> bool:
    """Whether there are any children, ended or not; called after every test, so it must not read all of /proc."""
    if not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children_from_proc(parent: int) -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - and so does this
        if not name.isdigit():
            continue
        try:
            state, ppid = _read(f"/proc/{name}/stat").rpartition(")")[2].split()[:2]
            if int(ppid) == parent and state not in "ZX":
                found[int(name)] = _read(f"/proc/{name}/cmdline").replace("\0", " ").strip()
        except (OSError, ValueError):  # it ended in the meantime
            continue
    return found


def _read(path: str) -> str:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a Path costs more than the reading
        return file.readall().decode(errors="replace")


def _children_from_ps(parent: int) -> dict[int, str]:
    words = ["ps", "-A", "-o", "pid=,ppid=,stat=,command="]
    lines = subprocess.run(words, capture_output=True, text=True, check=False).stdout.splitlines()
    rows = [line.split(None, 3) for line in lines]
    return {
        int(row[0]): row[3]
        for row in rows
        if len(row) == 4
        and int(row[1]) == parent
        and row[2][0] not in "ZX"
        and not row[3].startswith("ps -A")
    }
