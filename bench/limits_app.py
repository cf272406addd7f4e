"""The app of the limits benchmark: tasks behind various limits.

``TIDEMILL_STORE`` is its store; ``BENCH_MS`` is the duration of a job.
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
async def plain(n: int) -> None:  # noqa: ARG001  (a payload of the same size as the others)
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
