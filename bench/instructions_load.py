"""The program that ``bench.instructions`` measures: it fills a store, or drains it with a runner in this process.

    python bench/instructions_load.py fill URL JOBS | enqueue URL JOBS | drain URL JOBS CONCURRENCY
        [--count] [--bytecode] [--server PID]

``enqueue`` is a fill one by one. ``--count`` is for valgrind: its clock and threads make every run alike. ``--bytecode``
does the same and counts the executed bytecode instructions by function. ``--server`` is the main process of the PostgreSQL
server, whose CPU time is read. It is run as a file and imports nothing of ``bench``, so that ``PYTHONPATH`` alone chooses
the version of Tidemill. A memory store is filled by the process that drains it.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import threading
import time
from collections import Counter
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from tidemill.app import App
from tidemill.clock import SystemClock

BULK = 1_000
PATIENCE = 1_800.0  # seconds; valgrind slows a drain down 50 times


class CountingClock(SystemClock):
    """A clock whose monotonic time passes with each reading.

    Valgrind slows the process down 50 times. Measured by the real clock, all jobs would look slow to the runner, and it
    would claim and write in other batches at each run.
    """

    monotonic = staticmethod(count(1.0, 5e-6).__next__)


class BytecodeCount:
    """Executed bytecode instructions of all threads, by function."""

    def __init__(self) -> None:
        self._counts = Counter[CodeType]()

    def start(self) -> None:
        """Count from now on in this thread, and in threads that start later."""
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def clear(self) -> None:
        self._counts.clear()

    def by_function(self) -> dict[str, int]:
        """Return the counts by function, as "engine/context.py:Context.then"."""
        named = Counter[str]()
        for code, number in self._counts.items():
            file = code.co_filename.rpartition("/tidemill/")[2].rpartition("/python3.11/")[2]
            named[f"{file}:{code.co_qualname}"] += number
        return dict(named)

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "opcode":
            self._counts[frame.f_code] += 1
        elif frame.f_code.co_name == "<module>":
            # CPython 3.11 loops forever when it traces the opcodes of some modules. Imports come before the jobs.
            return None
        elif event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._trace


class Meter:
    """What the jobs between ``start`` and ``stop`` cost."""

    def __init__(self, server: int | None, bytecode: BytecodeCount | None) -> None:
        self._server, self._bytecode = server, bytecode
        self.figures: dict[str, Any] = {}

    def start(self) -> None:
        self._cpu, self._served = time.process_time(), self._server_seconds()
        if self._bytecode is not None:
            self._bytecode.clear()

    def stop(self) -> None:
        self.figures["cpu"] = time.process_time() - self._cpu
        if self._server is not None:
            self.figures["server"] = self._server_seconds() - self._served
        if self._bytecode is not None:
            sys.settrace(None)
            self.figures["functions"] = self._bytecode.by_function()

    def _server_seconds(self) -> float:
        """CPU time of the server's processes, which all outlive the measurement."""
        if self._server is None:
            return 0.0
        pids = Path(f"/proc/{self._server}/task/{self._server}/children").read_text().split()
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) for pid in pids) / 1e9


class Load:
    """The app, its task, and the jobs of one measurement."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.alike = options, options.count or options.bytecode
        self.bytecode = BytecodeCount() if options.bytecode else None
        self.meter = Meter(options.server, self.bytecode)
        self.app = App(options.url, clock=CountingClock() if self.alike else SystemClock())
        self.left, self.ended = options.jobs, threading.Event()

        @self.app.task(name="send_email")
        async def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
            if self.left == options.jobs:
                self.meter.start()
            self.left -= 1
            if not self.left:
                self.ended.set()
            return {"ok": True}

        self.task = send_email

    def fill(self) -> None:
        self.app.store.migrate()
        for start in range(0, self.options.jobs, BULK):
            numbers = range(start, min(self.options.jobs, start + BULK))
            self.task.enqueue_many({"user_id": number, "email": "a@example.com"} for number in numbers)

    def settle(self) -> None:
        """Remove what would make one run differ from the next."""
        if self.alike:
            # Threads that take the GIL from each other by a timer would make the count depend on the clock.
            sys.setswitchinterval(1.0)
        # Full collections would visit all objects of the start-up, and their number is a matter of chance.
        gc.collect()
        gc.freeze()
        if self.bytecode is not None:
            self.bytecode.start()

    def enqueue(self) -> None:
        """Enqueue the jobs one by one."""
        self.app.store.migrate()
        self.task.enqueue(user_id=0, email="a@example.com")
        self.meter.start()
        for number in range(self.options.jobs):
            self.task.enqueue(user_id=number, email="a@example.com")
        self.meter.stop()

    def drain(self) -> None:
        # Only a runner and its heartbeat: the other threads work by the clock, and valgrind makes all seconds longer.
        worker = self.app.worker(concurrency=self.options.concurrency)
        heart = worker._heart()
        runner = worker._begin(heart, None)
        if self.alike:
            runner._watch.close()
        heart.start()
        if not self.ended.wait(PATIENCE):
            raise SystemExit(f"{self.left} of {self.options.jobs} jobs have not run")
        runner.stop(30.0)
        self.meter.stop()
        heart.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=("fill", "enqueue", "drain"))
    parser.add_argument("url")
    parser.add_argument("jobs", type=int)
    parser.add_argument("concurrency", type=int, nargs="?", default=1_000)
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--bytecode", action="store_true")
    parser.add_argument("--server", type=int)
    options = parser.parse_args()
    load = Load(options)
    if options.verb == "fill" or (options.verb == "drain" and options.url.startswith("memory:")):
        load.fill()
    load.settle()
    if options.verb == "enqueue":
        load.enqueue()
    if options.verb == "drain":
        load.drain()
    print(json.dumps(load.meter.figures))
    load.app.close()


if __name__ == "__main__":
    main()
