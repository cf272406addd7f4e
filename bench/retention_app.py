"""The app of the retention benchmark.

``TIDEMILL_STORE`` is its store; ``BENCH_ARCHIVE`` is ``on`` or ``off``, ``BENCH_PACE`` the share of time in which it archives.
"""

from __future__ import annotations

import os

from tidemill import App, ArchivePolicy, Retention

MOST_ROUNDS = 50

app = App(
    retention=Retention(
        enabled=os.environ.get("BENCH_ARCHIVE") == "on",
        interval="1s",
        policies=[ArchivePolicy("old", tasks=["send_email"], max_age=0)],
        pace=float(_pace) if (_pace := os.environ.get("BENCH_PACE")) else None,
    )
)

for number in range(MOST_ROUNDS):

    @app.task(name=f"round_{number}")
    async def work(n: int) -> None:
        """Do nothing."""
