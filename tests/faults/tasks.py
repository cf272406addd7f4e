"""The tasks of the fault runs.

Each task logs its begin and end to the ledger and returns its lease token, so the stored result identifies the execution that
the store accepted.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.faults.ledger import BEGIN, END, TICK, WHERE, note

from tidemill import App, Context
from tidemill.client.enqueue.bound_task import BoundTask

STORE = "FAULTS_STORE"
"""Environment variable: the URL of the store."""

FIRES = "fires"
"""The file next to the ledger that records fires."""

DEFIANT_TIMEOUT = timedelta(seconds=2)
_TICK = 0.05


async def noop(ctx: Context) -> int:
    note(BEGIN, ctx)
    note(END, ctx)
    return ctx.job.token


async def tick(key: str, ctx: Context) -> int:
    """Log each fire of a schedule with its nominal time."""
    note(BEGIN, ctx)
    note_fire(key, ctx)
    note(END, ctx)
    return ctx.job.token


async def doze(seconds: float, ctx: Context) -> int:
    note(BEGIN, ctx)
    await asyncio.sleep(seconds)
    note(END, ctx)
    return ctx.job.token


def toil(seconds: float, ctx: Context) -> int:
    note(BEGIN, ctx)
    time.sleep(seconds)
    note(END, ctx)
    return ctx.job.token


async def hold(gate: str, ctx: Context) -> int:
    """Tick until the gate opens."""
    note(BEGIN, ctx)
    while not _is_open(gate, ctx):
        note(TICK, ctx)
        await asyncio.sleep(_TICK)
    note(END, ctx)
    return ctx.job.token


def hold_in_thread(gate: str, ctx: Context) -> int:
    """Tick until the gate opens, and ignore cancellation."""
    note(BEGIN, ctx)
    while not _is_open(gate, ctx):
        note(TICK, ctx)
        time.sleep(_TICK)
    note(END, ctx)
    return ctx.job.token


async def sign(gate: str, ctx: Context) -> tuple[int, float]:
    """Wait for the gate; the result identifies this run."""
    at = note(BEGIN, ctx)
    while not _is_open(gate, ctx):  # noqa: ASYNC110  (another process opens it)
        await asyncio.sleep(_TICK)
    note(END, ctx)
    return os.getpid(), at


def sign_in_thread(gate: str, ctx: Context) -> tuple[int, float]:
    """Wait for the gate on a thread, and ignore cancellation."""
    at = note(BEGIN, ctx)
    while not _is_open(gate, ctx):
        time.sleep(_TICK)
    note(END, ctx)
    return os.getpid(), at


def _is_open(gate: str, ctx: Context) -> bool:
    return Path(gate, "all").exists() or Path(gate, f"{ctx.job.id}.{ctx.job.token}").exists()


def hog(seconds: float, ctx: Context) -> int:
    """Hold the GIL in one C call; return for how long another thread was blocked."""
    note(BEGIN, ctx)
    longest, over = 0.0, False

    def measure() -> None:
        nonlocal longest
        last = time.monotonic()
        while not over:
            time.sleep(0.01)
            now = time.monotonic()
            longest, last = max(longest, now - last), now

    measuring = threading.Thread(target=measure)
    measuring.start()
    # A function called through PyDLL keeps the GIL, so this takes the same time on any machine, however busy.
    ctypes.PyDLL(None).sleep(math.ceil(seconds))
    over = True
    measuring.join()
    note(END, ctx)
    return round(longest)


async def hog_on_loop(seconds: float, ctx: Context) -> int:
    """Hold the GIL inside a coroutine, so that the event loop is blocked as well."""
    return hog(seconds, ctx)


def defy(how: str, ctx: Context) -> int:
    """Ignore every signal and exception and never return; ``how`` selects a variant."""
    note(BEGIN, ctx)
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):  # not allowed on this thread or for this signal
            continue
    ticked = 0.0
    while True:
        try:
            if time.monotonic() - ticked > _TICK:
                ticked = time.monotonic()
                note(TICK, ctx)
            if how == "sleep":
                time.sleep(0.02)
            elif how == "fork":
                how = "sleep"
                os.fork()  # both processes continue the loop
        except BaseException:  # noqa: BLE001  (it must survive every exception)
            continue


_TASKS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (noop, {}),
    (tick, {}),
    (doze, {}),
    (toil, {}),
    (toil, {"name": "toil_alone", "isolation": "process"}),
    (hold, {}),
    (hold_in_thread, {}),
    (hold_in_thread, {"name": "hold_alone", "isolation": "process"}),
    (sign, {}),
    (sign_in_thread, {}),
    (hog, {}),
    (hog_on_loop, {}),
    (defy, {"isolation": "process", "timeout": DEFIANT_TIMEOUT, "retry": None}),
]


def note_fire(key: str, ctx: Context) -> None:
    """Record which fire of which schedule took effect; the line is on disk before the handler continues."""
    job = ctx.job
    fire_at = job.details.fire_at
    assert fire_at is not None
    line = f"{key} {fire_at.isoformat()} {job.id} {job.token}\n"
    file = os.open(Path(os.environ[WHERE]).with_name(FIRES), os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    try:
        os.write(file, line.encode())
        os.fsync(file)
    finally:
        os.close(file)


class FaultApp:
    """An app with these tasks, by name."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.tasks: dict[str, BoundTask[..., Any]] = {}
        for target, options in _TASKS:
            bound = self.app.task(**options)(target)
            self.tasks[bound.name] = bound
