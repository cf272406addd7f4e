"""The app of the chaos run; its tasks log begin, ticks and end to the ledger.

Each task returns its lease token, so the stored result identifies the execution that the store accepted. Producers create a
``ChaosApp``; workers import ``app``, whose store and clock come from the environment.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

from tests.faults.flow_tasks import declare
from tests.faults.ledger import BEGIN, END, TICK, note
from tests.faults.mutations import apply_mutation, own_clock
from tests.faults.protections import switch_off
from tests.faults.tasks import STORE, note_fire

from tidemill import App, Context, Fixed, Limit, PermanentError, Unique
from tidemill.client.enqueue.bound_task import BoundTask
from tidemill.clock import Clock

STOPPED = "S"
"""Ledger line kind of a handler that was stopped or that failed."""

LIMITS = {"one": 1, "five": 5}
"""Limited tasks: how many jobs of one key may run at once."""

SIDE = "side"
"""The second queue."""

_TICK = 0.1
_AGAIN = Fixed(max_attempts=8, wait=timedelta(milliseconds=300))


async def _doze(seconds: float, ctx: Context) -> int:
    note(BEGIN, ctx)
    try:
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _TICK))
            note(TICK, ctx)
    except BaseException:
        note(STOPPED, ctx)
        raise
    note(END, ctx)
    return ctx.job.token


async def noop(ctx: Context) -> int:
    note(BEGIN, ctx)
    note(END, ctx)
    return ctx.job.token


async def doze(seconds: float, ctx: Context) -> int:
    return await _doze(seconds, ctx)


async def stamp(seconds: float, ctx: Context) -> int:
    """Return the pid of the process that ran the job."""
    await _doze(seconds, ctx)
    return os.getpid()


async def later(delay: float, ctx: Context) -> int:
    """Run after this delay."""
    return await _doze(0.0, ctx)


async def single(key: int, seconds: float, ctx: Context) -> int:
    """Run one job of a key at a time."""
    return await _doze(seconds, ctx)


async def limited(key: int, seconds: float, ctx: Context) -> int:
    """Run as many jobs of a key as its limit allows."""
    return await _doze(seconds, ctx)


def toil(seconds: float, ctx: Context) -> int:
    """Run on a thread and ignore cancellation."""
    note(BEGIN, ctx)
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(left, _TICK))
        note(TICK, ctx)
    note(END, ctx)
    return ctx.job.token


async def flaky(fails: int, ctx: Context) -> int:
    """Fail this many times, then succeed."""
    note(BEGIN, ctx)
    if ctx.job.attempt <= fails:
        note(STOPPED, ctx)
        raise ValueError("on purpose")
    note(END, ctx)
    return ctx.job.token


async def doomed(ctx: Context) -> int:
    """Fail permanently."""
    note(BEGIN, ctx)
    note(STOPPED, ctx)
    raise PermanentError("on purpose")


async def tick(key: str, ctx: Context) -> int:
    """Log each fire of a schedule with its nominal time."""
    note(BEGIN, ctx)
    note_fire(key, ctx)
    note(END, ctx)
    return ctx.job.token


FAILING = frozenset({"flaky", "doomed"})
"""Tasks whose executions fail on their own."""

_Work = Callable[..., int] | Callable[..., Awaitable[int]] | Callable[..., Coroutine[Any, Any, int]]
_TASKS: list[tuple[_Work, dict[str, Any]]] = [
    (noop, {}),
    (doze, {}),
    (stamp, {}),
    (later, {}),
    (toil, {}),
    (toil, {"name": "toil_alone", "isolation": "process"}),
    (single, {"unique": Unique(by=("key",))}),
    (flaky, {"retry": _AGAIN}),
    (doomed, {}),
    (tick, {}),
    *(
        (limited, {"name": name, "limits": [Limit(most, key="key", name=name)]})
        for name, most in LIMITS.items()
    ),
]


class ChaosApp:
    """An app with these tasks, by name."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.app = App(url, clock=clock)
        self.tasks: dict[str, BoundTask[..., Any]] = {}
        for target, options in _TASKS:
            bound = self.app.task(**options)(target)
            self.tasks[bound.name] = bound
        self.tasks |= declare(self.app)


if STORE in os.environ:
    apply_mutation()
    switch_off()
    app = ChaosApp(os.environ[STORE], own_clock()).app
