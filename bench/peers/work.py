"""The work inside a job: nothing, a loop, a blocked thread, a waiting coroutine or a report.

    python -m bench.peers.work bare LOOPS JOBS | calibrate SECONDS

``BENCH_WORK`` has a kind and an amount: ``spin LOOPS``, ``block SECONDS``, ``await SECONDS`` or ``report LINES``. ``bare`` runs the loop of so many
jobs without a job system, ``calibrate`` finds the loops of a duration. Standard library only, because peers import it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Literal, NamedTuple, cast

Kind = Literal["", "spin", "block", "await", "report"]
_TRIALS = 5
_TRIAL_LOOPS = 100_000


class Work(NamedTuple):
    """What a job does, and how much of it: loops, seconds or lines."""

    kind: Kind = ""
    amount: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} {self.amount!r}"

    @property
    def occupies_a_thread(self) -> bool:
        """Whether the job is a plain function rather than a coroutine."""
        return self.kind in ("spin", "block")

    def run(self) -> None:
        """Do the work on this thread."""
        if self.kind == "spin":
            spin(int(self.amount))
        elif self.kind == "block":
            time.sleep(self.amount)


def read_work(text: str) -> Work:
    """Return the work of a value of ``BENCH_WORK``.

    >>> read_work("block 0.005")
    Work(kind='block', amount=0.005)
    """
    kind, _, amount = text.partition(" ")
    return Work(cast("Kind", kind), float(amount)) if kind else Work()


WORK = read_work(os.environ.get("BENCH_WORK", ""))
"""The work of the jobs of this process."""


def spin(loops: int) -> int:
    """Keep the processor busy in Python code."""
    total = 0
    for number in range(loops):
        total = (total + number * number) % 1_000_003
    return total


def calibrate(seconds: float) -> int:
    """Return the loops that take this long; the fastest of several trials counts."""
    fastest = float("inf")
    for _ in range(_TRIALS):
        begun = time.perf_counter()
        spin(_TRIAL_LOOPS)
        fastest = min(fastest, time.perf_counter() - begun)
    return max(1, round(_TRIAL_LOOPS * seconds / fastest))


def bare(loops: int, jobs: int) -> float:
    """Return the seconds of the loops of so many jobs."""
    begun = time.perf_counter()
    for _ in range(jobs):
        spin(loops)
    return time.perf_counter() - begun


def main(words: list[str]) -> None:
    verb, *rest = words
    if verb == "bare":
        print(json.dumps({"n": int(rest[1]), "secs": bare(int(rest[0]), int(rest[1]))}))
    elif verb == "calibrate":
        print(json.dumps({"loops": calibrate(float(rest[0]))}))
    else:
        raise SystemExit(f"unknown command {verb!r}; expected bare or calibrate")


if __name__ == "__main__":
    main(sys.argv[1:])
