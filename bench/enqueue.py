"""How fast jobs are enqueued through the API users type, beside peers in the same run.

    python3 dev.py bench enqueue [--seconds 2] [--rounds 3] [--postgres URL] [--into FOLDER --names a,b]

One by one (W1), 1,000 at a time (W2), and 64 coroutines at once. Peers run if ``--into`` names the folder where ``bench.peers.install``
put them. Every round runs all of them in turn; medians are shown.
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

from bench.engine_ground import Database, Server
from bench.engine_sides import Side, tidemill
from bench.peers.sides import peers

from tidemill.app import App
from tidemill.testing.postgres import running_postgres

EMAIL = "a@example.com"
JOBS = 20_000

Rates = dict[str, float]


def ours(side: Side, url: str, seconds: float) -> Rates:
    """Tidemill's three ways: the first two as a program of their own, as the peers' are."""
    return rates(side, seconds) | {"64 at once": asyncio.run(together(url, seconds))}


async def together(url: str, seconds: float) -> float:
    """64 coroutines of one program, each waiting for its own jobs."""
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
    """What every side's program can do."""
    side.fresh()
    one = side.rate("w1", seconds)
    return {"one by one": one, **({"1,000 at a time": side.rate("w2", JOBS)} if side.bulk else {})}


def measure(options: argparse.Namespace, server: Server, files: Path) -> dict[str, list[Rates]]:
    ground = Database(server, "bench_enqueue_tidemill")
    tide, theirs = tidemill(ground, "tidemill"), list[Side]()
    if options.into:
        theirs, left_out = peers(options.names.split(","), options.into, server, None, files)
        for sentence in left_out:
            print(f"LEFT OUT: {sentence}", file=sys.stderr)
    found: dict[str, list[Rates]] = {}
    try:
        for _ in range(options.rounds):
            found.setdefault("tidemill", []).append(ours(tide, ground.url, options.seconds))
            for side in theirs:
                found.setdefault(side.name, []).append(rates(side, options.seconds))
    finally:
        for side in (tide, *theirs):
            side.ground.drop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgres", help="a server to use instead of a private one")
    parser.add_argument("--into", type=Path, help="the folder where bench.peers.install put the peers")
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
        found = measure(options, server, files)
    columns = ("one by one", "1,000 at a time", "64 at once")
    print(f"{'':<22}" + "".join(f"{column:>18}" for column in columns))
    for name, rounds in found.items():
        cells = [
            statistics.median(rates[column] for rates in rounds) if column in rounds[0] else None
            for column in columns
        ]
        print(
            f"{name:<22}" + "".join(f"{'–' if cell is None else format(cell, ',.0f'):>18}" for cell in cells)
        )


if __name__ == "__main__":
    main()
