"""An app whose tasks run in containers; its settings come from the environment."""

from __future__ import annotations

import json
import os
import threading
from datetime import timedelta

from tidemill import App, Container, Context, Fixed

# A container has no such variable, as its jobs have no store.
_given = json.loads(os.environ.get("CONTAINER_APP", "{}"))
app = App(_given.pop("store", "memory://"))
CONTAINER = Container(**_given) if _given else Container(image="shop:1")


@app.task(isolation=CONTAINER)
def variables() -> dict[str, str]:
    return dict(os.environ)


@app.task(isolation=CONTAINER)
def crash() -> None:
    os._exit(9)


@app.task(isolation=CONTAINER, retry=None)
def hang() -> None:
    threading.Event().wait()


@app.task(isolation=CONTAINER, retry=Fixed(max_attempts=2, wait=timedelta(0)))
def again(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise ConnectionError("not yet")
    return ctx.attempt
