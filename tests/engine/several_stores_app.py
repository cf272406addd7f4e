"""An app with two named stores for worker processes in tests, configured by the environment."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tidemill import App, Context, Every

app = App(
    stores={"jobs": os.environ["FIRST_STORE"], "reports": os.environ["SECOND_STORE"], "archive": "memory://"},
    migrate=True,
)


@app.task
def note(ctx: Context, path: str, seconds: float = 0.0) -> str:
    """Record the store and the process of an execution."""
    time.sleep(seconds)
    with Path(path).open("a") as file:
        file.write(f"{ctx.store_name} {os.getpid()} {ctx.job_id}\n")
    return str(ctx.store_name)


@app.task(isolation="process")
def alone(ctx: Context, path: str) -> str:
    """Enqueue a child from a child process."""
    return note.enqueue(path=path).store_name + " " + str(ctx.store_name)


@app.task(store="reports")
def fired() -> None:
    """The task of a schedule."""


if os.environ.get("WITH_SCHEDULE"):
    app.schedule(fired, Every("1s"), key="fired")
