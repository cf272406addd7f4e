"""An app for runner processes in tests. What it is and what its tasks do comes from the environment and from arguments."""

from __future__ import annotations

import asyncio
import os
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
    """Note who runs it, and wait until told to go on."""
    note(file)
    while not os.path.exists(file + ".go"):  # noqa: ASYNC110, ASYNC240, PTH110  (another process says when)
        await asyncio.sleep(0.02)
    return os.getpid()


@app.task
def wait_in_thread(file: str, ctx: Context) -> int:
    """The same in a thread; it stops when it is asked to."""
    note(file)
    while not Path(file + ".go").exists():
        ctx.check()
        time.sleep(0.02)
    return os.getpid()


@app.task
def stubborn(file: str) -> int:
    """The same, and nothing stops it."""
    note(file)
    while not Path(file + ".go").exists():
        time.sleep(0.02)
    return os.getpid()


@app.task(timeout=timedelta(seconds=0.3), retry=None)
def stubborn_soon(file: str) -> int:
    """The same, with less time than it takes."""
    return int(stubborn(file))


@app.task(retry=Fixed(max_attempts=10))
def poison(file: str) -> None:
    """Kill the process it runs in."""
    note(file)
    os._exit(3)


@app.task(retry=Fixed(max_attempts=10))
def nap(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@app.task
def grow(megabytes: int) -> int:
    """Keep so much memory for ever."""
    app.hoard = bytearray(megabytes << 20)  # type: ignore[attr-defined]
    return os.getpid()


@app.task
def start_a_program(file: str) -> None:
    """Start a program that outlives its job, and wait."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    note(file, child.pid)
    while not Path(file + ".go").exists():
        time.sleep(0.02)


def note(file: str, pid: int | None = None) -> None:
    """Append a line; one write is one line, whoever else writes."""
    with Path(file).open("a") as notes:
        notes.write(f"{pid or os.getpid()}\n")
