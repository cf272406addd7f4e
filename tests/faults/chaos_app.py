"""The app of the chaos run: tasks that write down that they began, that they go on, and how they ended.

Each returns its lease token, so the result that a store keeps tells which execution it accepted. ``Works.app`` is made anew by
whoever needs one; workers import ``app``, whose store and clock come from the environment.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

from tests.faults.ledger import BEGIN, END, TICK, note
from tests.faults.tasks import STORE, note_fire
from tests.faults.twist import own_clock, twist

from tidemill import App, Context, Fixed, Limit, PermanentError, Unique
from tidemill.client.bound import BoundTask
from tidemill.clock import Clock

STOPPED = "S"
"""The ledger's word for a handler that was made to stop."""

LIMITS = {"one": 1, "five": 5}
"""The limited tasks, each of which counts by key, and how many of a key may run."""

SIDE = "side"
"""A second queue."""

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


async def later(delay: float, ctx: Context) -> int:
    """Was asked for with this delay."""
    return await _doze(0.0, ctx)


async def single(key: int, seconds: float, ctx: Context) -> int:
    """One of each key at a time."""
    return await _doze(seconds, ctx)


async def limited(key: int, seconds: float, ctx: Context) -> int:
    """As many of a key at a time as its limit says."""
    return await _doze(seconds, ctx)


def toil(seconds: float, ctx: Context) -> int:
    """On a thread, deaf to everything."""
    note(BEGIN, ctx)
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        time.sleep(min(left, _TICK))
        note(TICK, ctx)
    note(END, ctx)
    return ctx.job.token


async def flaky(fails: int, ctx: Context) -> int:
    """Fails as often as it is told, then does well."""
    note(BEGIN, ctx)
    if ctx.job.attempt <= fails:
        note(STOPPED, ctx)
        raise ValueError("on purpose")
    note(END, ctx)
    return ctx.job.token


async def doomed(ctx: Context) -> int:
    """Never does well."""
    note(BEGIN, ctx)
    note(STOPPED, ctx)
    raise PermanentError("on purpose")


async def tick(key: str, ctx: Context) -> int:
    """What a schedule does: one line for each fire, named by the instant it was meant for."""
    note(BEGIN, ctx)
    note_fire(key, ctx)
    note(END, ctx)
    return ctx.job.token


FAILING = frozenset({"flaky", "doomed"})
"""Tasks whose executions fail by themselves."""

_Work = Callable[..., int] | Callable[..., Awaitable[int]] | Callable[..., Coroutine[Any, Any, int]]
_TASKS: list[tuple[_Work, dict[str, Any]]] = [
    (noop, {}),
    (doze, {}),
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


class Works:
    """An app with these tasks, by name."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self.app = App(url, clock=clock)
        self.tasks: dict[str, BoundTask[..., Any]] = {}
        for target, options in _TASKS:
            bound = self.app.task(**options)(target)
            self.tasks[bound.name] = bound


if STORE in os.environ:
    twist()
    app = Works(os.environ[STORE], own_clock()).app
