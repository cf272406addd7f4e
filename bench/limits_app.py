"""The app that limits are measured with: coroutines that do nothing, or take a millisecond, behind various limits.

Its store is what ``TIDEMILL_STORE`` says; ``BENCH_MS`` is how long a job takes.
"""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta

from tidemill import App, Limit, Rate

app = App()
_SECONDS = float(os.environ.get("BENCH_MS", "0")) / 1000


async def _work() -> None:
    if _SECONDS:
        await asyncio.sleep(_SECONDS)


@app.task
async def plain(n: int) -> None:  # noqa: ARG001  (as large a payload as the others have)
    await _work()


@app.task(limits=[Limit(3, key="key")])
async def keyed(key: int) -> None:  # noqa: ARG001
    await _work()


@app.task(limits=[Limit(50, name="all")])
async def together(n: int) -> None:  # noqa: ARG001
    await _work()


@app.task(limits=[Limit(3, key="key"), Limit(50, name="both")])
async def keyed_together(key: int) -> None:  # noqa: ARG001
    await _work()


@app.task(limits=[Limit(1, key="key")])
async def many(key: int) -> None:  # noqa: ARG001
    await _work()


@app.task(limits=[Rate(200, per=timedelta(seconds=1))])
async def rated(n: int) -> None:  # noqa: ARG001
    await _work()
