"""Memory and CPU use of processes, measured from one heartbeat to the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path

from tidemill.clock import Clock
from tidemill.domain.worker_reports import ProcessFigures
from tidemill.engine.process_memory import resident_memory

_SHORTEST = 0.5
"""Seconds between two readings below which the ticks of the system's clock are too coarse for a share."""


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU time that a process has used, or None where the system does not report it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, IndexError, ValueError):  # Windows has no os.sysconf
        return None


class ProcessMeter:
    """Measures processes by id. A process has a CPU share from its second reading on.

    One thread at a time may call it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        memory_of: Callable[[int], int | None] = resident_memory,
        seconds_of: Callable[[int], float | None] = cpu_seconds,
    ) -> None:
        self._clock, self._memory_of, self._seconds_of = clock, memory_of, seconds_of
        self._readings: dict[int, tuple[float, float]] = {}  # when, and CPU seconds until then
        self._shares: dict[int, float] = {}

    def measure(self, pid: int) -> ProcessFigures:
        """Return the present figures of a process."""
        now, seconds = self._clock.monotonic(), self._seconds_of(pid)
        if seconds is None:
            self._forget(pid)
            return ProcessFigures(self._memory_of(pid))
        at, before = self._readings.setdefault(pid, (now, seconds))
        if seconds < before:  # another process has the id now
            self._forget(pid)
            self._readings[pid] = now, seconds
        elif now - at >= _SHORTEST:
            self._shares[pid] = (seconds - before) / (now - at)
            self._readings[pid] = now, seconds
        return ProcessFigures(self._memory_of(pid), self._shares.get(pid))

    def keep(self, pids: Collection[int]) -> None:
        """Forget all other processes."""
        for pid in [pid for pid in self._readings if pid not in pids]:
            self._forget(pid)

    def _forget(self, pid: int) -> None:
        self._readings.pop(pid, None)
        self._shares.pop(pid, None)
