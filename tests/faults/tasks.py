"""The tasks of the fault runs. Each writes down in the ledger that it began and that it ended, and returns its lease token:
so the result that a store keeps tells which execution it accepted.
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
from tidemill.client.bound import BoundTask

STORE = "FAULTS_STORE"
"""Environment variable: the URL of the store that workers work for."""

FIRES = "fires"
"""The file beside the ledger in which fires are written down."""

DEFIANT_TIMEOUT = timedelta(seconds=2)
_TICK = 0.05


async def noop(ctx: Context) -> int:
    note(BEGIN, ctx)
    note(END, ctx)
    return ctx.job.token


async def tick(key: str, ctx: Context) -> int:
    """What a schedule does: one line for each fire, named by the instant it was meant for."""
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
    """The same, and it listens to nobody."""
    note(BEGIN, ctx)
    while not _is_open(gate, ctx):
        note(TICK, ctx)
        time.sleep(_TICK)
    note(END, ctx)
    return ctx.job.token


def _is_open(gate: str, ctx: Context) -> bool:
    return Path(gate, "all").exists() or Path(gate, f"{ctx.job.id}.{ctx.job.token}").exists()


def hog(seconds: float, ctx: Context) -> int:
    """Hold the interpreter's lock in one call into C; the result is for how long another thread was kept waiting."""
    note(BEGIN, ctx)
    longest, over = 0.0, False

    def feel() -> None:
        nonlocal longest
        last = time.monotonic()
        while not over:
            time.sleep(0.01)
            now = time.monotonic()
            longest, last = max(longest, now - last), now

    feeling = threading.Thread(target=feel)
    feeling.start()
    # A function called through PyDLL keeps the lock, so this takes exactly as long on any machine, however busy.
    ctypes.PyDLL(None).sleep(math.ceil(seconds))
    over = True
    feeling.join()
    note(END, ctx)
    return round(longest)


async def hog_on_loop(seconds: float, ctx: Context) -> int:
    """The same inside a coroutine, so that the event loop stands still as well."""
    return hog(seconds, ctx)


def defy(how: str, ctx: Context) -> int:
    """Never end, whatever one is told; ``how`` it is done differs."""
    note(BEGIN, ctx)
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):  # not on this thread, or not this one
            continue
    told = 0.0
    while True:
        try:
            if time.monotonic() - told > _TICK:
                told = time.monotonic()
                note(TICK, ctx)
            if how == "sleep":
                time.sleep(0.02)
            elif how == "fork":
                how = "sleep"
                os.fork()  # from here on there are two
        except BaseException:  # noqa: BLE001  (this is what it is for)
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
    (hog, {}),
    (hog_on_loop, {}),
    (defy, {"isolation": "process", "timeout": DEFIANT_TIMEOUT, "retry": None}),
]


def note_fire(key: str, ctx: Context) -> None:
    """Write down which fire of which schedule had its effect; on the disk before the handler goes on."""
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


class Mill:
    """An app with these tasks, by name."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.tasks: dict[str, BoundTask[..., Any]] = {}
        for target, options in _TASKS:
            bound = self.app.task(**options)(target)
            self.tasks[bound.name] = bound
