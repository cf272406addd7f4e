"""An app with tasks of flows, for real workers."""

from __future__ import annotations

import os

from tidemill import App, NoRetry, PermanentError

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
