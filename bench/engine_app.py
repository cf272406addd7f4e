"""The app of the engine benchmark: a task that records its start.

``TIDEMILL_STORE`` is its store. Starts are recorded under ``BENCH_SLOTS`` and, for latencies, ``BENCH_LAT``.
``BENCH_WORK`` makes it a task that does some work, with the body of the peers' jobs.
"""

from __future__ import annotations

import os
from pathlib import Path

from bench.engine_slots import Slot
from bench.peers import harness
from bench.peers.work import WORK

from tidemill.app import App

app = App()
_slot: Slot | None = None


def _open() -> Slot:
    # Not at import: enqueuers import this module too, and run no jobs.
    global _slot  # noqa: PLW0603  (a job body has nowhere else to keep it)
    starts = os.environ.get("BENCH_LAT")
    _slot = Slot(Path(os.environ["BENCH_SLOTS"]), Path(starts) if starts else None)
    return _slot


if WORK.occupies_a_thread:

    @app.task
    def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
        return harness.working_body(user_id)

elif WORK.kind == "report":
    from tidemill import Context

    @app.task
    async def send_email(ctx: Context, user_id: int, email: str) -> dict[str, bool]:
        result = harness.body(user_id)
        for line in range(int(WORK.amount)):
            ctx.log(f"line {line} of the mail to {email}", user=user_id)
        if WORK.amount:
            ctx.progress(1.0, "sent")
        return result

elif WORK.kind:

    @app.task
    async def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
        return await harness.waiting_body(user_id)

else:

    @app.task
    async def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
        (_slot or _open()).note(user_id)
        return {"ok": True}
