"""The app of the rate runs: rate-limited handlers, and others that occupy slots.

The ledger holds readings of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta
from pathlib import Path

from tidemill import App, Rate

LEDGER, STORE, RATE, BURST = "FAULTS_LEDGER", "FAULTS_STORE", "FAULTS_RATE", "FAULTS_BURST"
NAME = "shared.rate"

app = App(os.environ.get(STORE))
_burst = int(os.environ.get(BURST, "0")) or None
_rate = Rate(int(os.environ.get(RATE, "2")), per=timedelta(seconds=1), burst=_burst, name=NAME)
_file: int | None = None


def _note() -> None:
    at = time.monotonic()
    global _file  # noqa: PLW0603  (one open file for each process)
    if _file is None:
        _file = os.open(Path(os.environ[LEDGER]), os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)
    os.write(_file, f"{at!r}\n".encode())


@app.task(limits=[_rate])
def on_a_thread(seconds: float) -> None:
    _note()
    time.sleep(seconds)


@app.task(limits=[_rate])
async def on_the_loop(seconds: float) -> None:
    _note()
    await asyncio.sleep(seconds)


@app.task(limits=[_rate], isolation="process")
def in_a_process(seconds: float) -> None:
    _note()
    time.sleep(seconds)


@app.task
def busy_thread(seconds: float) -> None:
    time.sleep(seconds)


@app.task
async def busy_loop(seconds: float) -> None:
    await asyncio.sleep(seconds)
