"""Runs one command of a Python peer's program in that peer's environment.

    python -m bench.peers.drive PEER setup | w1 SECONDS | w2 JOBS | fill JOBS | w5 SECONDS FILE [RATE] | worker

``w1`` enqueues one by one, ``w2`` 1,000 at a time, ``fill`` as fast as the peer's calls allow, ``w5`` one every 50 ms, or at random
times with a rate per second; ``w5`` writes the begin and end of each call to the file. The last line of output is a JSON object with
the number of jobs and the seconds. Standard library only.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.peers.harness import BULK, Program, arrivals

# Concurrent calls when a store is filled by a peer without a bulk call.
CONCURRENT_CALLS = 50


def load(name: str) -> Program:
    """Return the program of a module, imported by its full name so that workers in other processes find its tasks."""
    program = importlib.import_module(f"bench.peers.programs.{name}").Peer()
    assert isinstance(program, Program)
    return program


def in_bulk(program: Program) -> bool:
    return type(program).push_many is not Program.push_many


async def one_by_one(program: Program, seconds: float) -> int:
    done, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        await program.push(done)
        done += 1
    return done


async def bulk(program: Program, count: int) -> int:
    for start in range(0, count, BULK):
        await program.push_many(range(start, min(count, start + BULK)))
    return count


async def fill(program: Program, count: int) -> int:
    if in_bulk(program):
        return await bulk(program, count)
    for start in range(0, count, CONCURRENT_CALLS):
        numbers = range(start, min(count, start + CONCURRENT_CALLS))
        await asyncio.gather(*(program.push(number) for number in numbers))
    return count


async def timed_calls(program: Program, times: Sequence[float], file: Path) -> int:
    await asyncio.sleep(0.2)
    begun, lines = time.monotonic(), []
    for number, at in enumerate(times):
        await asyncio.sleep(max(0.0, begun + at - time.monotonic()))
        called = time.monotonic_ns()
        await program.push(number)
        lines.append(f"{number} {called} {time.monotonic_ns()}\n")
    file.write_text("".join(lines))  # noqa: ASYNC240  (no other task runs at this point)
    return len(lines)


async def enqueue(program: Program, verb: str, rest: list[str]) -> tuple[int, float]:
    """Run a command of an enqueuer; return jobs and seconds, without the connection and the first call."""
    await program.open()
    try:
        if verb in ("w1", "w5"):
            await program.push(-1)
        begun = time.perf_counter()
        match verb:
            case "w1":
                count = await one_by_one(program, float(rest[0]))
            case "w2":
                count = await bulk(program, int(rest[0]))
            case "fill":
                count = await fill(program, int(rest[0]))
            case "w5":
                times = arrivals(float(rest[0]), float(rest[2]) if rest[2:] else None)
                count = await timed_calls(program, times, Path(rest[1]))
            case _:
                raise SystemExit(f"unknown command {verb!r}")
        return count, time.perf_counter() - begun
    finally:
        await program.close()


def main(words: list[str]) -> None:
    name, verb, *rest = words
    program = load(name)
    if verb == "worker":
        program.worker()
    elif verb == "setup":
        program.setup()
    else:
        count, seconds = asyncio.run(enqueue(program, verb, rest))
        print(json.dumps({"n": count, "secs": seconds}))


if __name__ == "__main__":
    main(sys.argv[1:])
