"""The worker processes of a side: start, observation and stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bench import engine_slots
from bench.engine_proc import births, cpu_seconds, family, resident_mb
from bench.engine_sides import Failed, Side

_PATIENCE = 15.0  # seconds for ours to stop in good order


class Workers:
    """The worker processes of a side, for a ``with`` block."""

    def __init__(
        self,
        side: Side,
        scratch: Path,
        *,
        processes: int,
        concurrency: int | None,
        threads: int | None = None,
        starts: Path | None = None,
    ) -> None:
        self.name = side.name
        self.spawned_at = 0  #: monotonic nanoseconds
        self._side, self._commands = side, side.workers(processes, concurrency, threads)
        self._slots, self._log = scratch / f"slots-{side.name}", scratch / f"{side.name}.log"
        self._words = {"BENCH_SLOTS": str(self._slots)}
        if starts is not None:
            self._words["BENCH_LAT"] = str(starts)
        self._started: list[subprocess.Popen[bytes]] = []
        self._before: dict[int, float] = {}  # processor seconds of each process when its first job was seen

    def __enter__(self) -> Self:
        engine_slots.clear(self._slots)
        self.spawned_at = time.monotonic_ns()
        with self._log.open("wb") as log:
            for command in self._commands:
                self._started.append(
                    subprocess.Popen(
                        command,
                        env={**self._side.environment, **self._words},
                        cwd=self._side.folder,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop them: ours by a graceful stop, peers and unresponsive processes by a kill."""
        everyone = births(family(*self._pids()))
        if self._side.ours:
            for process in self._started:
                process.send_signal(signal.SIGTERM)
            until = time.monotonic() + _PATIENCE
            for process in self._started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, until - time.monotonic()))
        for process in self._started:
            process.kill()
            process.wait()
        # Another process may have the pid by now, but not with the same start time.
        for pid, birth in births(everyone).items():
            if birth == everyone[pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # Observations ----------------------------------------------------------------------------------------------------

    def _pids(self) -> list[int]:
        return [process.pid for process in self._started]

    def seen(self) -> engine_slots.Seen:
        seen = engine_slots.look(self._slots)
        for pid in seen.pids:
            if pid not in self._before:
                self._before[pid] = cpu_seconds([pid])
        return seen

    def cpu(self) -> float:
        """Return the processor seconds of the processes that run jobs, each since its first observed job."""
        return cpu_seconds(self._before) - sum(self._before.values())

    def cpu_beside(self, before: Mapping[int, float]) -> float:
        """Return the processor seconds of the other processes since ``before``, a result of ``cpu_each``."""
        now = self.cpu_each()
        return sum(spent - before.get(pid, 0.0) for pid, spent in now.items() if pid not in self._before)

    def cpu_each(self) -> dict[int, float]:
        """Return the processor seconds so far of each process."""
        return {pid: cpu_seconds([pid]) for pid in family(*self._pids())}

    def cpu_of_all(self) -> float:
        """Return the processor seconds so far of the whole family."""
        return cpu_seconds(family(*self._pids()), reaped=True)

    def resident(self, *, whole: bool) -> float:
        """Return the resident memory in MiB of the whole family, or of the processes that run jobs."""
        return resident_mb(family(*self._pids()) if whole else self.seen().pids)

    def last_words(self) -> str:
        """Return the end of their log."""
        return "end of the log: " + self._log.read_text(errors="replace").strip()[-600:]

    def check(self) -> None:
        """Raise ``Failed`` if a process has ended."""
        for process in self._started:
            if (code := process.poll()) is not None:
                raise Failed(f"{self.name}: a worker ended with code {code}; {self.last_words()}")
