"""The enqueuer of the engine benchmark, with the commands of the peers' programs.

    python -m bench.engine_client setup | w1 SECONDS | w2 JOBS | fill JOBS | w5 SECONDS FILE [RATE]

``w1`` enqueues one by one, ``w2`` and ``fill`` 1,000 at a time, ``w5`` one every 50 ms, or at random times with a rate per second;
``w5`` writes the begin and end of each call to the file. The last line of output is a JSON object with the number of jobs and the seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.engine_app import app, send_email
from bench.peers.harness import arrivals

EMAIL = "a@example.com"
BULK = 1_000


def one_by_one(seconds: float) -> int:
    done, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        send_email.enqueue(user_id=done, email=EMAIL)
        done += 1
    return done


def in_bulk(count: int) -> int:
    for start in range(0, count, BULK):
        numbers = range(start, min(count, start + BULK))
        send_email.enqueue_many({"user_id": number, "email": EMAIL} for number in numbers)
    return count


def timed_calls(times: Sequence[float], file: Path) -> int:
    time.sleep(0.2)
    begun, lines = time.monotonic(), []
    for number, at in enumerate(times):
        time.sleep(max(0.0, begun + at - time.monotonic()))
        called = time.monotonic_ns()
        send_email.enqueue(user_id=number, email=EMAIL)
        lines.append(f"{number} {called} {time.monotonic_ns()}\n")
    file.write_text("".join(lines))
    return len(lines)


def main(words: list[str]) -> None:
    verb, rest = words[0], words[1:]
    if verb == "setup":
        app.store.migrate()
        app.close()
        return
    if verb in ("w1", "w5"):
        send_email.enqueue(user_id=-1, email=EMAIL)
    # As in the peers' programs, imports and the connection are not part of the measured time.
    for task in app.registry:
        task.arguments.prepare()
    app.store.check()
    begun = time.perf_counter()
    match verb:
        case "w1":
            count = one_by_one(float(rest[0]))
        case "w2" | "fill":
            count = in_bulk(int(rest[0]))
        case "w5":
            times = arrivals(float(rest[0]), float(rest[2]) if rest[2:] else None)
            count = timed_calls(times, Path(rest[1]))
        case _:
            raise SystemExit(f"unknown command {verb!r}")
    seconds = time.perf_counter() - begun
    app.close()
    print(json.dumps({"n": count, "secs": seconds}))


if __name__ == "__main__":
    main(sys.argv[1:])
