"""Tasks that make their runner sick, and healthy ones that run next to them."""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
from datetime import timedelta
from typing import Any

from tests.faults.ledger import BEGIN, END, note
from tests.faults.protections import switch_off
from tests.faults.tasks import STORE

from tidemill import App, Context
from tidemill.client.enqueue.bound_task import BoundTask

NAME = "tests.faults.wedge_app:app"
TIMEOUT = 3.0
HOLD = 90
"""Seconds for which one C call holds the GIL; far longer than any wait for it."""


async def hold_lock(ctx: Context) -> None:
    """Hold the GIL past the timeout, in one C call."""
    note(BEGIN, ctx)
    ctypes.PyDLL(None).sleep(HOLD)


def close_descriptors(ctx: Context) -> None:
    """Close every file descriptor of the process, the standard ones first."""
    note(BEGIN, ctx)
    os.close(1)
    os.close(2)
    os.closerange(0, 4096)


async def unset_loop(ctx: Context) -> None:
    """Remove the event loop from its thread."""
    note(BEGIN, ctx)
    asyncio.set_event_loop(None)


def limit_descriptors(ctx: Context) -> None:
    """Leave the process too few file descriptors to open anything."""
    note(BEGIN, ctx)
    resource.setrlimit(resource.RLIMIT_NOFILE, (5, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


async def neighbour(seconds: float, ctx: Context) -> int:
    note(BEGIN, ctx)
    await asyncio.sleep(seconds)
    return ctx.job.token


async def probe(ctx: Context) -> int:
    note(BEGIN, ctx)
    note(END, ctx)
    return ctx.job.token


WEDGES = ("hold_lock", "close_descriptors", "unset_loop", "limit_descriptors")


class Wedges:
    """An app with these tasks, by name."""

    def __init__(self, url: str) -> None:
        self.app = App(url, name=NAME)
        self.tasks: dict[str, BoundTask[..., Any]] = {}
        sick: dict[str, Any] = {"retry": None, "timeout": timedelta(seconds=TIMEOUT)}
        targets: list[Any] = [hold_lock, close_descriptors, unset_loop, limit_descriptors, neighbour, probe]
        for target in targets:
            options = sick if target.__name__ in WEDGES else {}
            self.tasks[target.__name__] = self.app.task(name=target.__name__, **options)(target)


if STORE in os.environ:
    switch_off()
    app = Wedges(os.environ[STORE]).app
