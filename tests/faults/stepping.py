"""Clocks that a chaos run steps; conversion of wall and monotonic time.

Workers on SQLite read their wall clock through ``SteppedClock``; a PostgreSQL server reads it through libfaketime. One file
each holds the offset, and only ``ClockControl`` writes it. The product is not involved.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tests.servers.processes import ServiceMissing

from tidemill.clock import SystemClock

OFFSET = "FAULTS_CLOCK"
"""Environment variable: the file with the offset of this process's wall clock, in seconds."""

STEPS = (60.0, -60.0, 3600.0, -3600.0)
"""Sizes of a step, in seconds."""

_FORMAT = struct.Struct("d")
_LIBRARIES = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime", "/opt/*/lib/faketime")
_SLACK = 1.0


def find_faketime() -> Path:
    """Return the path of libfaketime, or raise ``ServiceMissing``."""
    for pattern in _LIBRARIES:
        for library in sorted(Path("/").glob(f"{pattern[1:]}/libfaketime.so.1")):
            return library
    raise ServiceMissing("libfaketime is not installed; install it: apt-get install faketime")


class SteppedClock:
    """The system clock plus the current offset in the file."""

    def __init__(self, path: Path) -> None:
        self._system = SystemClock()
        with path.open("rb") as file:
            self._shared = mmap.mmap(file.fileno(), _FORMAT.size, access=mmap.ACCESS_READ)

    def now(self) -> datetime:
        return self._system.now() + timedelta(seconds=_FORMAT.unpack_from(self._shared)[0])

    def monotonic(self) -> float:
        return self._system.monotonic()


@dataclass(frozen=True, slots=True)
class Step:
    """From this monotonic time on, the wall clock is off by this many seconds."""

    at: float
    offset: float


@dataclass(frozen=True)
class Timeline:
    """Wall time as a function of monotonic time. ``epoch_at`` is the wall time at monotonic zero, without any step."""

    epoch_at: datetime
    steps: Sequence[Step] = ()

    def wall(self, at: float) -> datetime:
        """Return what the stepped clock showed at this monotonic time."""
        return self._shifted(at, self._offset(at))

    def latest_wall(self, since: float, at: float) -> datetime:
        """Return the wall time at ``at`` by the fastest clock in force between the two readings."""
        between = [step.offset for step in self.steps if since <= step.at <= at]
        return self._shifted(at, max([self._offset(since), self._offset(at), *between]))

    def readings(self, moment: datetime) -> list[float]:
        """Return each monotonic time at which the stepped clock showed this moment; after a step back there are several."""
        starts = [Step(float("-inf"), 0.0), *self.steps]
        ends = [step.at for step in self.steps] + [float("inf")]
        plain = (moment - self.epoch_at).total_seconds()
        readings = [
            plain - step.offset
            for step, end in zip(starts, ends, strict=True)
            if step.at - _SLACK <= plain - step.offset <= end + _SLACK
        ]
        # A step forward skipped this moment.
        return readings or [
            min((step.at for step in self.steps if step.at >= plain - step.offset), default=plain)
        ]

    def _offset(self, at: float) -> float:
        return next((step.offset for step in reversed(self.steps) if step.at <= at), 0.0)

    def _shifted(self, at: float, offset: float) -> datetime:
        return self.epoch_at + timedelta(seconds=at + offset)


class ClockControl:
    """Writes the offset for workers and for a server, and records each step."""

    def __init__(self, folder: Path) -> None:
        self._own, self._server = folder / "clock", folder / "faketime"
        self._own.write_bytes(_FORMAT.pack(0.0))
        self._server.write_text("+0\n")
        self._system = SystemClock()
        self.steps: list[Step] = []
        self.is_on_server = False  #: whether the server's clock is stepped instead of the workers'

    @property
    def path(self) -> Path:
        """Return the file for ``SteppedClock``."""
        return self._own

    def server_environment(self) -> Mapping[str, str]:
        """Return the environment of a server whose clock can be stepped; raise ``ServiceMissing`` without libfaketime."""
        self.is_on_server = True
        return {
            "LD_PRELOAD": str(find_faketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self._server),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    @property
    def offset(self) -> float:
        """Return the current offset of the stepped clock in seconds."""
        return self.steps[-1].offset if self.steps else 0.0

    @property
    def highest(self) -> float:
        """Return the furthest that the clock was ever ahead."""
        return max([0.0, *(step.offset for step in self.steps)])

    def set(self, offset: float) -> None:
        """Step the clock to this offset."""
        if offset == self.offset:
            return
        if self.is_on_server:
            fresh = self._server.with_suffix(".new")
            fresh.write_text(f"{offset:+f}\n")
            fresh.replace(self._server)
        else:
            file = os.open(self._own, os.O_WRONLY)
            try:
                os.pwrite(file, _FORMAT.pack(offset), 0)
            finally:
                os.close(file)
        self.steps.append(Step(self._system.monotonic(), offset))

    def now(self) -> datetime:
        """Return what the stepped clock shows."""
        return self._system.now() + timedelta(seconds=self.offset)
