"""An app for runner processes in tests, configured by the environment."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from tidemill import App, Context, Fixed

if os.environ.get("WORKER_APP_BROKEN") and Path(os.environ["WORKER_APP_BROKEN"]).exists():
    raise RuntimeError("this module is broken on purpose")

app = App(os.environ["WORKER_APP_STORE"])
in_memory = App("memory://")


@app.task
def add(left: int, right: int) -> int:
    return left + right


@app.task
async def wait(file: str) -> int:
    """Record the process id, and wait for the signal file."""
    note(file)
    while not os.path.exists(file + ".go"):  # noqa: ASYNC110, ASYNC240, PTH110  (another process creates it)
        await asyncio.sleep(0.02)
    return os.getpid()


@app.task
def wait_in_thread(file: str, ctx: Context) -> int:
    """Record and wait in a thread, and stop on request."""
    note(file)
    while not Path(file + ".go").exists():
        ctx.check()
        time.sleep(0.02)
    return os.getpid()


@app.task
def stubborn(file: str) -> int:
    """Record and wait in a thread that does not stop on request."""
    note(file)
    while not Path(file + ".go").exists():
        time.sleep(0.02)
    return os.getpid()


@app.task(timeout=timedelta(seconds=0.3), retry=None)
def stubborn_soon(file: str) -> int:
    """Record and wait in a thread, with a timeout shorter than the wait."""
    return int(stubborn(file))


@app.task(retry=Fixed(max_attempts=10))
def poison(file: str) -> None:
    """Kill the process that runs the job."""
    note(file)
    os._exit(3)


@app.task(retry=Fixed(max_attempts=10))
def nap(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@app.task
def grow(megabytes: int) -> int:
    """Keep this much memory allocated."""
    app.hoard = bytearray(megabytes << 20)  # type: ignore[attr-defined]
    return os.getpid()


@app.task
def start_a_program(file: str) -> None:
    """Start a program that outlives its job, and wait."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    note(file, child.pid)
    while not Path(file + ".go").exists():
        time.sleep(0.02)


@app.task(timeout=timedelta(seconds=2), retry=None)
def hold_the_interpreter(file: str, seconds: int) -> None:
    """Block every other thread of the process for this many seconds."""
    note(file)
    ctypes.PyDLL(None).sleep(seconds)


@app.task(retry=Fixed(max_attempts=10))
async def block_the_loop(file: str, seconds: float) -> int:
    """Block the event loop for this many seconds."""
    note(file)
    time.sleep(seconds)  # noqa: ASYNC251  (that is the point)
    return os.getpid()


@app.task(retry=Fixed(max_attempts=10))
async def doze(file: str, seconds: float) -> int:
    note(file)
    await asyncio.sleep(seconds)
    return os.getpid()


@app.task(retry=Fixed(max_attempts=10))
def close_descriptors(file: str) -> None:
    """Close every file of the process, the first time."""
    first = not Path(file).exists()
    note(file)
    if first:
        os.closerange(0, 4096)
        time.sleep(600)


@app.task(retry=Fixed(max_attempts=10))
def exhaust_descriptors(file: str) -> None:
    """Prevent the process from opening more files, the first time."""
    first = not Path(file).exists()
    note(file)
    if first:
        resource.setrlimit(resource.RLIMIT_NOFILE, (5, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        time.sleep(600)


@app.task
def orphan_some(count: int, file: str) -> None:
    """Start programs whose parent exits at once, so that the process that adopts orphans gets them. They exit soon."""
    script = "for i in $(seq $0); do sleep 0.1 & echo $i; done"
    out = subprocess.run(["sh", "-c", script, str(count)], check=True, capture_output=True, text=True).stdout
    for line in out.split():
        note(file, int(line))


def note(file: str, pid: int | None = None) -> None:
    """Append a line in one write, so that lines of concurrent writers do not mix."""
    with Path(file).open("a") as notes:
        notes.write(f"{pid or os.getpid()}\n")
