"""An app with hostile jobs for sandboxes and containers."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tidemill import App, Container, Context, Sandbox, Secret

app = App(os.environ.get("SANDBOX_APP_STORE", "postgresql://ada:hunter2-canary@db.invalid/jobs"))
SANDBOX = Sandbox(memory="512M")


def _tried(action: Callable[[], object]) -> str:
    """The result of an action as text, or the name of its error."""
    try:
        return str(action())
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)
    except BaseException as error:  # noqa: BLE001
        return type(error).__name__


def _all_text(folder: str) -> str:
    """Every readable file of a few directories of ``/proc``."""
    found = []
    for name in [path.name for path in Path(folder).iterdir()]:
        for part in ("environ", "cmdline", "maps"):
            with contextlib.suppress(OSError):
                found.append(Path(folder, name, part).read_bytes().decode("utf-8", "replace"))
    return "\n".join(found)


@app.task(isolation=SANDBOX)
def look(paths: list[str], processes: bool = True) -> dict[str, Any]:
    """The things that a hostile job finds: variables, processes, files and sockets."""
    return {
        "uid": os.getuid(),
        "pid": os.getpid(),
        "folder": str(Path.cwd()),
        "environment": dict(os.environ),
        "processes": sorted(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()),
        "proc": _all_text("/proc") if processes else "",
        "root": sorted(path.name for path in Path("/").iterdir()),
        "files": {path: _tried(Path(path).read_text) for path in paths},
        "write": {path: _tried(partial(Path(path).write_text, "x")) for path in paths},
        "descriptors": sorted(str(Path(f"/proc/self/fd/{name}").readlink()) for name in _descriptors()),
    }


def _descriptors() -> list[str]:
    names = [path.name for path in Path("/proc/self/fd").iterdir()]
    return [name for name in names if Path(f"/proc/self/fd/{name}").exists() or _is_socket(name)]


def _is_socket(name: str) -> bool:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/self/fd/{name}").readlink()).startswith("socket:")
    return False


@app.task(isolation=SANDBOX)
def connect(port: int) -> dict[str, str]:
    """Try to leave by a socket."""
    return {
        "tcp": _tried(lambda: socket.create_connection(("127.0.0.1", port), 2)),
        "udp": _tried(
            lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))
        ),
        "virtual machine": _tried(lambda: socket.socket(40, socket.SOCK_STREAM)),
        "raw": _tried(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
    }


@app.task(isolation=SANDBOX)
def kill_others() -> dict[str, str]:
    """Signal every process that has a number."""
    # The number of a thread names its process.
    own = [path.name for path in Path("/proc/self/task").iterdir()]
    return {
        "parent": _tried(lambda: os.kill(os.getppid(), signal.SIGKILL)),
        "others": str([pid for pid in range(2, 30_000) if str(pid) not in own and _killed(pid)]),
        "trace": _tried(_trace_parent),
    }


def _killed(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _trace_parent() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, os.getppid(), 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
    return 0


@app.task(isolation=SANDBOX)
def escape() -> dict[str, str]:
    """Ask the kernel for more."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> int:
        if getattr(libc, name)(*arguments):
            raise OSError(ctypes.get_errno(), name)
        return 0

    return {
        "user namespace": _tried(lambda: call("unshare", 0x10000000)),
        "mount": _tried(lambda: call("mount", b"none", b"/", None, 32 | 4096, None)),
        "chroot": _tried(lambda: os.chroot("/tmp")),
        "setuid": _tried(lambda: os.setuid(0)),
        "sysctl": _tried(lambda: Path("/proc/sys/kernel/hostname").write_text("x")),
        "limit": _tried(_raise_limit),
        "keys": _tried(lambda: call("syscall", 250, 0, -3, 0)),
    }


def _raise_limit() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NPROC, (10_000, 10_000))


@app.task(isolation=SANDBOX)
def fork_bomb() -> None:
    while True:
        with contextlib.suppress(OSError):
            os.fork()


@app.task(isolation=SANDBOX)
def forks() -> int:
    """How many processes it can start."""
    started = 0
    for _ in range(200):
        try:
            if os.fork() == 0:
                time.sleep(600)
                os._exit(0)
        except OSError:
            break
        started += 1
    return started


@app.task(isolation=SANDBOX)
def memory_bomb() -> int:
    kept = []
    while True:
        kept.append(bytearray(32 * 1024 * 1024))


@app.task(isolation=Sandbox(memory="256M"))
def memory_bombs() -> None:
    """Use little memory in each of many processes."""
    for _ in range(8):
        if os.fork() == 0:
            _kept = os.urandom(64 * 1024 * 1024)
            time.sleep(600)
    time.sleep(600)


@app.task(isolation=Sandbox(cpu="1s"))
def spins() -> None:
    while True:
        pass


@app.task(isolation=SANDBOX)
def sleeps(ctx: Context, sign: str | None = None) -> None:
    if sign is not None:
        Path(sign).touch()
    time.sleep(600)


@app.task(isolation=SANDBOX)
def outlives() -> int:
    """Leave a process behind that no longer belongs to its parent."""
    if os.fork() == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)
        time.sleep(600)
        os._exit(0)
    return os.getpid()


@app.task(isolation=SANDBOX)
def add(one: int, other: int) -> int:
    return one + other


@app.task(isolation=SANDBOX)
def reveals(pin: Secret[str]) -> Secret[str]:
    return Secret(pin.reveal() + "!" + str("TIDEMILL_ENCRYPTION_KEYS" in os.environ))


@app.task(isolation=SANDBOX)
def enqueues() -> None:
    add.enqueue(one=1, other=2)


FORGED = {
    "rubbish": b"\0\0\0\x08rubbish!",
    "a giant": b"\xff" * 8,
    "half a message": b"\0\0\1\0{",
    "another run": b'\0\0\0\x39{"kind": "ended", "run": 999, "outcome": {}, "spent": ""}',
    "an unknown request": b'\0\0\0\x39{"kind": "open", "run": 1, "ask": 1, "job": 7, "text": 8}',
}


@app.task(isolation=SANDBOX)
def forges(message: str) -> None:
    """Write to the channel that leads to the runner."""
    (channel,) = (int(name) for name in _descriptors() if _is_socket(name))
    os.write(channel, FORGED[message])
    time.sleep(600)


@app.task(isolation=SANDBOX)
def prints() -> None:
    print("\x1b]0;title\x07\x1b[31mred", flush=True)


@app.task(isolation=SANDBOX)
def writes(size: int) -> str:
    return _tried(lambda: Path("large").write_bytes(b"x" * size))


@app.task(isolation=SANDBOX)
def runs_a_program() -> str:
    done = subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@app.task(isolation=Container(image="shop:1"))
def exits() -> None:
    os._exit(9)


@app.task(isolation=Container(image="shop:1"))
def ignores_the_end(sign: str) -> None:
    """Outlive the runner: a process of its own keeps the container."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    Path(sign).touch()
    time.sleep(600)


@app.task(isolation=Container(image="shop:1"))
def tells(ctx: Context, size: int) -> str:
    """Report progress, log, save a checkpoint, and return a large result."""
    ctx.progress(0.5, "half")
    ctx.log("a line", number=1)
    print("printed")
    before = ctx.checkpoint("place")
    ctx.save_checkpoint("place", "third")
    return f"{before} {ctx.checkpoint('place')} " + "x" * size


@app.task(isolation=Container(image="shop:1"))
def control_groups() -> dict[str, str]:
    """The limits that the kernel shows in the container."""
    names = (
        "memory.max", "cpu.max", "pids.max", "memory/memory.limit_in_bytes", "cpu/cpu.cfs_quota_us", "pids/pids.max",
    )  # fmt: skip
    return {name: _tried(Path("/sys/fs/cgroup", name).read_text).strip() for name in names}
