"""The app of the rollup runs: tasks that succeed, fail, retry, and keep no row."""

from __future__ import annotations

import os
from datetime import timedelta

from tidemill import App, Fixed, PermanentError

STORE = "FAULTS_STORE"

app = App(os.environ.get(STORE))


@app.task
async def good(number: int) -> int:
    return number


@app.task(queue="mail")
def threaded(number: int) -> None:
    if number % 7 == 0:
        raise PermanentError("no")


@app.task(retry=Fixed(max_attempts=3, wait=timedelta(milliseconds=1)))
async def flaky(number: int) -> None:
    if number % 3 == 0:
        raise ConnectionError("again")


@app.task(record="none")
async def light(number: int) -> None: ...
