"""Benchmark of enqueueing through the public API, optionally compared with peers.

    python3 dev.py bench enqueue [--seconds 2] [--rounds 3] [--postgres URL] [--into FOLDER --names a,b]

One by one (W1), 1,000 at a time (W2), and from 64 concurrent coroutines. Peers run if ``--into`` names the folder where
``bench.peers.install`` installed them. Every round runs all of them in turn; the output shows medians.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from bench.engine_sides import Side, tidemill
from bench.engine_storage import Database, Server
from bench.peers.sides import peers
from tests.servers.postgres import running_postgres

from tidemill.app import App

EMAIL = "a@example.com"
JOBS = 20_000

Rates = dict[str, float]


def ours(side: Side, url: str, seconds: float) -> Rates:
    """Measure Tidemill in three ways: the first two in a separate program, like the peers."""
    return rates(side, seconds) | {"64 at once": asyncio.run(together(url, seconds))}


async def together(url: str, seconds: float) -> float:
    """Enqueue from 64 coroutines of one program, each of which awaits its own jobs."""
    with App(url) as app:

        @app.task
        def noop(user_id: int, email: str) -> None: ...

        await noop.aenqueue(user_id=0, email=EMAIL)
        done, begun = 0, time.perf_counter()

        async def produce() -> None:
            nonlocal done
            while time.perf_counter() - begun < seconds:
                await noop.aenqueue(user_id=done, email=EMAIL)
                done += 1

        await asyncio.gather(*(produce() for _ in range(64)))
        return done / (time.perf_counter() - begun)


def rates(side: Side, seconds: float) -> Rates:
    """Measure what every side's program supports."""
    side.fresh()
    one = side.rate("w1", seconds)
    return {"one by one": one, **({"1,000 at a time": side.rate("w2", JOBS)} if side.bulk else {})}


def measure(options: argparse.Namespace, server: Server, files: Path) -> dict[str, list[Rates]]:
    storage = Database(server, "bench_enqueue_tidemill")
    tide, theirs = tidemill(storage, "tidemill"), list[Side]()
    if options.into:
        theirs, left_out = peers(options.names.split(","), options.into, server, None, files)
        for sentence in left_out:
            print(f"left out: {sentence}", file=sys.stderr)
    results: dict[str, list[Rates]] = {}
    try:
        for _ in range(options.rounds):
            results.setdefault("tidemill", []).append(ours(tide, storage.url, options.seconds))
            for side in theirs:
                results.setdefault(side.name, []).append(rates(side, options.seconds))
    finally:
        for side in (tide, *theirs):
            side.storage.drop()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgres", help="server to use instead of a private one")
    parser.add_argument("--into", type=Path, help="folder where bench.peers.install installed the peers")
    parser.add_argument("--names", default="pgqueuer,graphile-worker", help="which peers")
    options = parser.parse_args()
    with ExitStack() as stack:
        url = options.postgres
        if url is None:
            private = running_postgres(fsync=True, settings={"shared_buffers": "1GB"})
            url = stack.enter_context(private).url()
        server = Server(url)
        stack.callback(server.close)
        files = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tm-enqueue-")))
        results = measure(options, server, files)
    columns = ("one by one", "1,000 at a time", "64 at once")
    print(f"{'':<22}" + "".join(f"{column:>18}" for column in columns))
    for name, rounds in results.items():
        cells = [
            statistics.median(rates[column] for rates in rounds) if column in rounds[0] else None
            for column in columns
        ]
        print(
            f"{name:<22}" + "".join(f"{'–' if cell is None else format(cell, ',.0f'):>18}" for cell in cells)
        )


if __name__ == "__main__":
    main()
