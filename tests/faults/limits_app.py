"""The app of the limit runs: three limited tasks that log their begin and end."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from tidemill import App, Context, Limit

LEDGER, STORE = "FAULTS_LEDGER", "FAULTS_STORE"
LIMITS = {"one": 1, "five": 5, "fifty": 50}

app = App(os.environ.get(STORE))
_file: int | None = None


def _note(kind: str, task: str, ctx: Context) -> None:
    global _file  # noqa: PLW0603  (one open file for each process)
    if _file is None:
        _file = os.open(Path(os.environ[LEDGER]), os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    words = (kind, task, ctx.job.id, ctx.job.token, os.getpid(), repr(time.monotonic()))
    os.write(_file, (" ".join(map(str, words)) + "\n").encode())


async def _work(task: str, seconds: float, ctx: Context) -> None:
    _note("B", task, ctx)
    try:
        await asyncio.sleep(seconds)
    finally:
        _note("E", task, ctx)


@app.task(limits=[Limit(1, name="one")])
async def one(seconds: float, ctx: Context) -> None:
    await _work("one", seconds, ctx)


@app.task(limits=[Limit(5, name="five")])
async def five(seconds: float, ctx: Context) -> None:
    await _work("five", seconds, ctx)


@app.task(limits=[Limit(50, name="fifty")])
async def fifty(seconds: float, ctx: Context) -> None:
    await _work("fifty", seconds, ctx)
