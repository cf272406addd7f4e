"""An app with tasks of flows, for real workers."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from tidemill import App, Context, Fixed, NoRetry, PermanentError

app = App(os.environ.get("FLOW_STORE", "memory://"), migrate=True)


@app.task
def count(limit: int) -> list[int]:
    """Return the numbers below a limit."""
    return list(range(limit))


@app.task
def double(number: int) -> int:
    """Return twice a number."""
    return 2 * number


@app.task
def total(parts: list[int]) -> int:
    """Return the sum of the parts."""
    return sum(parts)


@app.task(retry=NoRetry())
def fail(value: int) -> int:
    """Fail permanently."""
    raise PermanentError(f"cannot take {value}")


@app.task
def cleanup() -> str:
    """Run at the end of a flow."""
    return "clean"


@app.task(retry=Fixed(max_attempts=50, wait=timedelta(0)))
def member(number: int) -> int:
    """Return the number, however many executions are killed."""
    return number


@app.task
def hold(gate: str) -> None:
    """Wait until a file exists."""
    while not Path(gate).exists():
        time.sleep(0.02)


@app.task
def join(job: str, ctx: Context) -> str:
    """Wait for another job."""
    ctx.join(UUID(job))
    return "joined"
