"""The cases of the benchmark of flows in DBOS, in its own environment.

    python dbos_functions.py CASE,… LARGE

The process runs its workflows itself, which is how DBOS is used. ``BENCH_URL`` is the database. Its queue is polled every 0.1 s and
runs 100 workflows at once. Prints the seconds of each case as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable

from dbos import DBOS, DBOSConfig

QUEUE = "bench"
SIGNALS = 20
_SETTLE = 0.2


@DBOS.step()
def number() -> int:
    return 1


@DBOS.workflow()
def stepping(count: int) -> float:
    """Return the mean seconds of a step."""
    began = time.perf_counter()
    for _ in range(count):
        number()
    return (time.perf_counter() - began) / count


@DBOS.workflow()
def link(value: int) -> int:
    return value + 1


@DBOS.workflow()
def joined(count: int) -> int:
    handles = [DBOS.enqueue_workflow(QUEUE, link, value) for value in range(count)]
    return len([handle.get_result() for handle in handles])


@DBOS.workflow()
def answered() -> float:
    """Return the time at the line after a message."""
    DBOS.recv("go", timeout_seconds=60)
    return time.time()


def step(large: int) -> list[float]:
    del large
    return [stepping(1_000)]


def out_and_in(large: int) -> list[float]:
    began = time.perf_counter()
    count = min(1_000, large)
    assert joined(count) == count
    return [time.perf_counter() - began]


def signal(large: int) -> list[float]:
    del large
    took: list[float] = []
    for _ in range(SIGNALS):
        handle = DBOS.start_workflow(answered)
        time.sleep(_SETTLE)
        sent = time.time()
        DBOS.send(handle.workflow_id, "now", "go")
        took.append(handle.get_result() - sent)
    return took


def threads(large: int) -> list[float]:
    """The threads that 1,000 waiting functions hold."""
    before = threading.active_count()
    waiting = [DBOS.start_workflow(answered) for _ in range(min(1_000, large))]
    time.sleep(1)
    held = threading.active_count() - before
    for handle in waiting:
        DBOS.send(handle.workflow_id, "now", "go")
    for handle in waiting:
        handle.get_result()
    return [float(held)]


CASES: dict[str, Callable[[int], list[float]]] = {
    "step": step,
    "out-and-in-1000": out_and_in,
    "signal": signal,
    "threads-of-1000": threads,
}


def main() -> None:
    wanted, large = sys.argv[1].split(","), int(sys.argv[2])
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": os.environ["BENCH_URL"],
        "log_level": "ERROR",
        "application_version": "1",
        "run_admin_server": False,
    }
    DBOS(config=config)
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=100, polling_interval_sec=0.1, on_conflict="always_update")
    link(0)
    found = {case: CASES[case](large) for case in wanted if case in CASES}
    DBOS.destroy()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
