"""The app of the retention benchmark.

``TIDEMILL_STORE`` is its store; ``BENCH_ARCHIVE`` is ``on`` or ``off``, ``BENCH_PACE`` the share of time in which it archives.
``BENCH_SLICE`` are the seconds of a slice: the worker archives in every second slice only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from tidemill import App, ArchivePolicy, Retention
from tidemill.archive.duty import RetentionDuty

MOST_ROUNDS = 50


def slice_at(moment: float, length: float) -> int:
    """The number of the slice at this Unix time. The worker archives in slices with an odd number."""
    return int(moment / length)


def archive_in_slices(length: float) -> None:
    """Let the retention duty wait, after each batch, for the next slice with archiving."""
    step = RetentionDuty.step

    def gated(self: RetentionDuty, wait: Callable[[float], bool], **more: Any) -> float:
        def in_slice(seconds: float) -> bool:
            ended = wait(seconds)
            while not ended and slice_at(time.time(), length) % 2 == 0:
                ended = wait(0.02)
            return ended

        return 1.0 if in_slice(0.0) else step(self, in_slice, **more)

    RetentionDuty.step = gated  # type: ignore[method-assign,assignment]


if _length := os.environ.get("BENCH_SLICE"):
    archive_in_slices(float(_length))

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
