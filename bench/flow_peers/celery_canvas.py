"""The cases of the benchmark of flows in Celery, in its own environment.

    python celery_canvas.py CASE,… LARGE

``BENCH_URL`` is a Redis server, the broker and the place of results. A worker of two processes takes 64 messages ahead. Prints the
seconds of each case as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from celery import Celery, chain, chord, group

URL = os.environ["BENCH_URL"]
_PATIENCE = 600.0

app = Celery("celery_canvas", broker=URL, backend=URL)
app.conf.worker_prefetch_multiplier = 32  # for each of two processes
app.conf.broker_connection_retry_on_startup = True


@app.task
def link(number: int) -> int:
    return number + 1


@app.task
def count(parts: list[int]) -> int:
    return len(parts)


def chained(large: int) -> list[float]:
    del large
    began = time.perf_counter()
    answer = chain(link.s(0), *(link.s() for _ in range(999))).apply_async()
    assert answer.get(timeout=_PATIENCE, interval=0.01) == 1_000
    return [time.perf_counter() - began]


def joined(nodes: int) -> Callable[[int], list[float]]:
    def measure(large: int) -> list[float]:
        wanted = min(nodes, large)
        began = time.perf_counter()
        answer = chord((link.s(number) for number in range(wanted)), count.s()).apply_async()
        assert answer.get(timeout=_PATIENCE, interval=0.01) == wanted
        return [time.perf_counter() - began]

    return measure


def started(nodes: int) -> Callable[[int], list[float]]:
    def measure(large: int) -> list[float]:
        wanted = min(nodes, large)
        began = time.perf_counter()
        answer = group(link.s(number) for number in range(wanted)).apply_async(queue="nobody")
        took = time.perf_counter() - began
        answer.forget()
        return [took]

    return measure


CASES: dict[str, Callable[[int], list[float]]] = {
    "chain-1000": chained,
    "out-and-in-1000": joined(1_000),
    "out-and-in-10000": joined(10_000),
    "start-100": started(100),
    "start-10000": started(10_000),
}


def main() -> None:
    wanted, large = sys.argv[1].split(","), int(sys.argv[2])
    words = [sys.executable, "-m", "celery", "-A", "celery_canvas", "worker", "-c", "2", "-l", "ERROR"]
    with subprocess.Popen(
        [*words, "--without-gossip", "--without-mingle"],
        cwd=Path(__file__).parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as worker:
        try:
            link.delay(0).get(timeout=60)
            found = {case: CASES[case](large) for case in wanted if case in CASES}
        finally:
            worker.terminate()
            worker.wait(60)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
