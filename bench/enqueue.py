"""How fast jobs are enqueued through the API users type, beside peers in the same run.

    python3 dev.py bench enqueue [--seconds 2] [--rounds 3] [--postgres URL] [--peers FOLDER --venvs FOLDER]

One by one (W1), 1,000 at a time (W2), and 64 coroutines at once. With ``--peers`` the folder of peer programs is given (each
understands ``setup``, ``w1`` and ``w2``) and with ``--venvs`` the folder of their environments; the server must then listen where
those programs expect it. Every round runs all of them in turn; medians are shown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg

from tidemill.app import App
from tidemill.testing.postgres import running_postgres

EMAIL = "a@example.com"
BULK = 1_000

Rates = dict[str, float]


def ours(url: str, seconds: float) -> Rates:
    """Tidemill's three ways: the first two as a program of their own, as the peers' are."""
    environment = {**os.environ, "TIDEMILL_STORE": url}

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "bench.engine_client", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    return _rates(run, seconds) | {"64 at once": asyncio.run(together(url, seconds))}


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


def _rates(run: Callable[..., str], seconds: float) -> Rates:
    run("setup")
    rates: Rates = {}
    for what, words in (("one by one", ("w1", str(seconds))), ("1,000 at a time", ("w2", "20000"))):
        answer = json.loads(run(*words).strip().splitlines()[-1])
        rates[what] = answer["n"] / answer["secs"]
    return rates


def peer(name: str, peers: Path, venvs: Path, database: str, seconds: float) -> Rates:
    """A peer's program, run as its own harness would."""
    script = next(peers.glob(f"p_{name}.*"))
    program = venvs / name / "bin" / "python" if script.suffix == ".py" else _node(venvs, name)
    environment = {**os.environ, "BENCH_DB": database, "BENCH_BULK": str(BULK)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [str(program), str(script), *words],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            cwd=peers,
        )
        return done.stdout

    return _rates(run, seconds)


def _node(venvs: Path, name: str) -> Path:
    found = next(venvs.glob(f"node-{name}*/node_modules/node/bin/node"), None)
    return found or Path("node")


def fresh(server: str, name: str) -> str:
    """A new database on the server."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"drop database if exists {name} with (force)")
        connection.execute(f"create database {name}")
    parts = urlsplit(server)
    return urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))


def measure(options: argparse.Namespace, server: str) -> dict[str, list[Rates]]:
    found: dict[str, list[Rates]] = {}
    names = [name for name in options.names.split(",") if name] if options.peers else []
    for _ in range(options.rounds):
        found.setdefault("tidemill", []).append(ours(fresh(server, "bench_tidemill"), options.seconds))
        for name in names:
            database = f"bench_{name.replace('-', '_')}"
            fresh(server, database)
            found.setdefault(name, []).append(
                peer(name, options.peers, options.venvs, database, options.seconds)
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgres", help="a server to use instead of a private one")
    parser.add_argument("--peers", type=Path, help="the folder of peer programs")
    parser.add_argument("--venvs", type=Path, default=Path(), help="the folder of their environments")
    parser.add_argument("--names", default="pgqueuer,graphile", help="which peers")
    options = parser.parse_args()
    if options.postgres:
        found = measure(options, options.postgres)
    else:
        with running_postgres(fsync=True, settings={"shared_buffers": "1GB"}) as server:
            found = measure(options, server.url())
    columns = ("one by one", "1,000 at a time", "64 at once")
    print(f"{'':<12}" + "".join(f"{column:>18}" for column in columns))
    for name, rounds in found.items():
        cells = [
            statistics.median(rates[column] for rates in rounds) if column in rounds[0] else None
            for column in columns
        ]
        print(
            f"{name:<12}" + "".join(f"{'–' if cell is None else format(cell, ',.0f'):>18}" for cell in cells)
        )


if __name__ == "__main__":
    main()
