"""The app of the benchmark of flows. ``TIDEMILL_STORE`` is its store."""

from __future__ import annotations

import time

from tidemill import App, Context
from tidemill.errors import PermanentError

app = App()


@app.task
async def link(number: int = 0) -> int:
    return number + 1


@app.task
async def count(parts: list[int]) -> int:
    return len(parts)


@app.task
async def failed() -> None:
    raise PermanentError("the first node of the chain fails")


def _number() -> int:
    return 1


async def _anumber() -> int:
    return 1


@app.task
def steps(ctx: Context, count: int) -> float:
    """Return the mean seconds of a step."""
    began = time.perf_counter()
    for _ in range(count):
        ctx.step("one", _number)
    return (time.perf_counter() - began) / count


@app.task
async def many_steps(ctx: Context, count: int) -> None:
    for _ in range(count):
        await ctx.astep("one", _anumber)


@app.task
def resumed(ctx: Context, count: int) -> float:
    """Return the seconds from the first line of the resumed function to the line after its sleep."""
    began = time.perf_counter()
    for _ in range(count):
        ctx.step("one", _number)
    ctx.sleep("rest", 1.2)
    return time.perf_counter() - began


@app.task
def answered(ctx: Context) -> float:
    """Return the time at the line after a signal."""
    ctx.wait_for("go")
    return time.time()
