"""Shared part of the Python peers' programs: store, job body and interface.

Standard library only, because it runs in each peer's own environment. ``drive`` runs the commands.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import struct
import threading
import time
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path

from bench.peers import work

URL = os.environ.get("BENCH_URL", "")
"""The store: a URL of PostgreSQL or Redis, or the path of an SQLite file."""

CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "10"))
MODE = os.environ.get("BENCH_MODE", "")
"""The mode of a peer that has several."""

WORK = work.WORK
"""The work of each job; most workloads have none."""

EMAIL = "a@example.com"
BULK = 1_000


class Program:
    """One peer. Each command creates a program: enqueuers are opened and closed, a worker runs until it is killed."""

    def setup(self) -> None:
        """Create the schema in an empty store."""

    async def open(self) -> None:
        """Connect as an enqueuer."""

    async def close(self) -> None:
        """Close the connection."""

    async def push(self, number: int) -> None:
        """Enqueue one job by the call that users write."""
        raise NotImplementedError

    async def push_many(self, numbers: Sequence[int]) -> None:
        """Enqueue several jobs at once, if the peer supports it."""
        raise NotImplementedError

    def worker(self) -> None:
        """Run jobs until killed."""
        raise NotImplementedError


def payload(number: int) -> dict[str, object]:
    """Return the payload of a job."""
    return {"user_id": number, "email": EMAIL}


def arrivals(seconds: float, rate: float | None) -> list[float]:
    """Return the times of the calls of W5 and W14: one every 50 ms, or at random times with this rate per second.

    The random times are the same in every run and for every system.
    """
    if rate is None:
        return [number * 0.05 for number in range(int(seconds / 0.05))]
    chance, times, at = random.Random(14), list[float](), 0.0
    while (at := at + chance.expovariate(rate)) < seconds:
        times.append(at)
    return times


# The body of every job ------------------------------------------------------------------------------------------------


class _Slot:
    """The words of this process, as ``bench.engine_slots`` reads them; here, threads may record concurrently."""

    def __init__(self) -> None:
        path = Path(os.environ["BENCH_SLOTS"]) / str(os.getpid())
        with path.open("w+b") as file:
            file.truncate(struct.calcsize("qqqqq"))
            self._words = memoryview(mmap(file.fileno(), 0)).cast("q")
        starts = os.environ.get("BENCH_LAT")
        self._starts = None if starts is None else os.open(starts, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._count, self._ended = itertools.count(1), itertools.count(1)

    def note(self, number: int, now: int) -> None:
        if self._starts is not None:
            os.write(self._starts, b"%d %d\n" % (number, now))
        count, words = next(self._count), self._words
        if count == 1:
            words[0] = now
        # The count is written last: a reader of the count also sees the rest.
        words[2] = now
        words[1] = count

    def note_end(self) -> None:
        count, words = next(self._ended), self._words
        words[4] = time.monotonic_ns()
        words[3] = count


_slot: _Slot | None = None
_opening = threading.Lock()


def _forget() -> None:
    # A forked worker has its own slot.
    global _slot, _opening
    _slot, _opening = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def _open() -> _Slot:
    global _slot  # noqa: PLW0603  (a job body has nowhere else to keep it)
    with _opening:
        if _slot is None:
            _slot = _Slot()
        return _slot


def body(user_id: int) -> dict[str, bool]:
    """Run a job: record its start, and return a small result."""
    now = time.monotonic_ns()
    (_slot or _open()).note(user_id, now)
    return {"ok": True}


def working_body(user_id: int) -> dict[str, bool]:
    """Run a job that occupies its thread: record its start and its end."""
    result = body(user_id)
    WORK.run()
    _open().note_end()
    return result


async def waiting_body(user_id: int) -> dict[str, bool]:
    """Run a job that waits in a coroutine: record its start and its end."""
    result = body(user_id)
    await asyncio.sleep(WORK.amount)
    _open().note_end()
    return result
