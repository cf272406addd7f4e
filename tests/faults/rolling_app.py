"""Two releases of one app with different schedules and an added optional argument."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from tests.faults.ledger import BEGIN, END, note
from tests.faults.protections import switch_off
from tests.faults.tasks import STORE

from tidemill import App, Context, Every
from tidemill.client.enqueue.bound_task import BoundTask

RELEASE = "FAULTS_RELEASE"
"""Environment variable: the release that this process runs, 1 or 2."""

NAME = "tests.faults.rolling_app:app"
SECOND = timedelta(seconds=1)
KEYS = {"changed": (60 * SECOND, SECOND), "removed": (SECOND, None), "added": (None, SECOND)}
"""Intervals of each schedule in the first and the second release."""


async def fire(ctx: Context) -> int:
    note(BEGIN, ctx)
    note(END, ctx)
    return ctx.job.token


async def greet_by_name(name: str, ctx: Context) -> int:
    return await fire(ctx)


async def greet_by_region(name: str, ctx: Context, region: str = "north") -> int:
    return await fire(ctx)


class Release:
    """The app as one release declares it."""

    def __init__(self, url: str, number: int) -> None:
        self.app = App(url, name=NAME)
        self.app.task(name="fire")(fire)
        handler: Any = greet_by_name if number == 1 else greet_by_region
        self.greet: BoundTask[..., Any] = self.app.task(name="greet")(handler)
        for key, intervals in KEYS.items():
            if (interval := intervals[number - 1]) is not None:
                self.app.schedule("fire", Every(interval), key=key)


if RELEASE in os.environ:
    switch_off()
    app = Release(os.environ[STORE], int(os.environ[RELEASE])).app
