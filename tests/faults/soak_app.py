"""The app of the soak: short-lived jobs of every kind, schedules, and retention by the minute."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta

from tests.faults.tasks import STORE

from tidemill import App, ArchivePolicy, Context, Every, Fixed, Limit, PermanentError, Retention

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def increase(n: int) -> int:
    """A step of the durable function."""
    return n + 1


def build(url: str) -> App:
    """Create the app on a store."""
    app = App(
        url,
        name="soak",
        migrate=True,
        retention=Retention(
            interval=MINUTE,
            pace=0.5,
            use_defaults=False,
            policies=[
                ArchivePolicy("all", max_age=MINUTE),
                ArchivePolicy("end", from_tier="archive", max_age=3 * MINUTE, to=None),
            ],
        ),
    )

    @app.task
    async def work(ctx: Context, n: int) -> dict[str, int]:
        ctx.log("working", n=n)
        ctx.progress(0.5, "half")
        await asyncio.sleep(0.02)
        return {"n": n}

    @app.task
    def in_thread(ctx: Context, text: str) -> int:
        with ctx.stage("count"):
            time.sleep(0.005)
        return len(text)

    @app.task(retry=Fixed(max_attempts=3, wait=SECOND))
    async def flaky(ctx: Context, n: int) -> int:
        if ctx.attempt < 2 + n % 2:
            raise ConnectionError(f"attempt of {n % 7}")
        return n

    @app.task(retry=None)
    async def refuse(n: int) -> None:
        raise PermanentError(f"order {n % 7} is unknown")

    @app.task(limits=[Limit(max=3, key="account")])
    async def limited(account: int) -> int:
        await asyncio.sleep(0.01)
        return account

    @app.task(timeout=timedelta(minutes=2))
    async def long(ctx: Context) -> None:
        """Wait until the load cancels it."""
        await asyncio.sleep(100)

    @app.task
    async def durable(ctx: Context, n: int) -> int:
        first = await ctx.astep("first", increase, n)
        await ctx.asleep("pause", SECOND)
        return await ctx.astep("second", increase, first)

    @app.task
    def add(left: int, right: int) -> int:
        return left + right

    @app.scheduled(Every(SECOND), key="each-second")
    @app.task
    async def tick() -> None: ...

    @app.scheduled(Every(SECOND), key="queued", overlap="queue")
    @app.task
    async def slow_tick() -> None:
        await asyncio.sleep(0.5)

    return app


app = build(os.environ.get(STORE, "memory://"))
