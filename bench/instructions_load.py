"""The program that ``bench.instructions`` counts: it fills a store, or drains it with a runner in this process.

    python bench/instructions_load.py fill URL JOBS | drain URL JOBS CONCURRENCY

It is run as a file and imports nothing of ``bench``, so that ``PYTHONPATH`` alone chooses the version of Tidemill.
A memory store is filled by the process that drains it.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from itertools import count

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


def main(words: list[str]) -> None:
    verb, url, jobs = words[0], words[1], int(words[2])
    app = App(url, clock=CountingClock())
    left, ended = jobs, threading.Event()
    cpu = 0.0

    @app.task(name="send_email")
    async def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
        nonlocal left, cpu
        left -= 1
        if not left:
            cpu = time.process_time() - cpu
            ended.set()
        return {"ok": True}

    if verb == "fill" or url.startswith("memory:"):
        app.store.migrate()
        for start in range(0, jobs, BULK):
            numbers = range(start, min(jobs, start + BULK))
            send_email.enqueue_many({"user_id": number, "email": "a@example.com"} for number in numbers)
    if verb == "drain":
        # Threads that take the GIL from each other by a timer would make the count depend on the clock.
        sys.setswitchinterval(10.0)
        # Full collections would visit all objects of the start-up, and their number is a matter of chance.
        gc.collect()
        gc.freeze()
        # Only a runner and its heartbeat: the other threads work by the clock, and valgrind makes all seconds longer.
        worker = app.worker(concurrency=int(words[3]))
        heart = worker._heart()
        cpu = time.process_time()
        runner = worker._begin(heart, None)
        runner._watch.close()
        heart.start()
        if not ended.wait(PATIENCE):
            raise SystemExit(f"{left} of {jobs} jobs have not run")
        runner.stop(30.0)
        heart.close()
        print(json.dumps({"cpu": cpu}))
    app.close()


if __name__ == "__main__":
    main(sys.argv[1:])
