"""The app of the engine benchmark: a coroutine that only records its start.

``TIDEMILL_STORE`` is its store. Starts are recorded under ``BENCH_SLOTS`` and, for latencies, ``BENCH_LAT``.
"""

from __future__ import annotations

import os
from pathlib import Path

from bench.engine_slots import Slot

from tidemill.app import App

app = App()
_slot: Slot | None = None


def _open() -> Slot:
    # Not at import: enqueuers import this module too, and run no jobs.
    global _slot  # noqa: PLW0603  (a job body has nowhere else to keep it)
    starts = os.environ.get("BENCH_LAT")
    _slot = Slot(Path(os.environ["BENCH_SLOTS"]), Path(starts) if starts else None)
    return _slot


@app.task
async def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
    (_slot or _open()).note(user_id)
    return {"ok": True}
