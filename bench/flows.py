"""Benchmark of flows and durable functions, with DBOS and Celery beside.

    python3 dev.py bench flows [--postgres URL] [--stores postgres,sqlite] [--peers dbos,celery] [--rounds 3] [--signals 20]
                               [--only chain,…] [--large 10000] [--waiting 1000000] [--json FILE]

Every round has a new database, and one process of ``tidemill worker`` that is idle before each case. The stores and the peers take
turns within a round. DBOS runs on the same PostgreSQL server, Celery on a private Redis server; they are installed first, into
``.cache/peers``. Each runs the cases that it has an equivalent for. The cases are:

- ``start-100``, ``start-10000``: the call of ``start``, with as many nodes in one map
- ``chain-1000``: from the commit of the start to the end of the flow
- ``out-and-in-1000``, ``out-and-in-10000``: the same; as many nodes, and one that takes their results
- ``member``: the same for as many nodes and nothing after them, divided by their number
- ``step``: one durable step, one after the other in one job
- ``step-of-100``: one durable step, while 100 jobs record 100 steps each
- ``resume-1000``: from the first line of the resumed function, over 1,000 recorded steps, to the next one
- ``signal``: from the call of ``signal`` to the next line of a suspended function
- ``cancel-10000``: from the call of ``cancel`` for a flow with as many waiting nodes to its end
- ``skip-1000``: from the failure of the first node of a chain to the end of the flow, which skips the other nodes
- ``edge``: the start and the run of a node that needs as many others by name, less those of the others alone, divided by their number
- ``threads-of-1000``: the threads that 1,000 waiting functions hold; they begin two at a time, so the pools of the runners stay small
- ``waiting``: the seconds of drains of plain jobs beside ``--waiting`` suspended jobs, divided by those before; no worker takes part
- ``commit``: one small write with its commit, for comparison: most cases wait for the disk once or several times

``--large`` replaces 10,000. The figures are medians of all rounds, and of all signals. ``bench instructions --base DIR`` compares the
drain of plain jobs with another version.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.engine_storage import Database, Server
from bench.flow_peers import run as peers
from bench.flows_app import app, link
from bench.flows_cases import CASES, COUNTED
from tests.servers.postgres import running_postgres

ROOT = Path(__file__).resolve().parents[1]
SIGNAL_P99 = 0.015


@contextmanager
def working(folder: Path) -> Iterator[int]:
    """Run ``tidemill worker`` until the block ends; yield the number of its process."""
    words = ["worker", "bench.flows_app:app", "--concurrency", "200", "--queues", "default"]
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tidemill", *words],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
        try:
            link.enqueue().result(timeout=60)
            yield worker.pid
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)


def measured(options: argparse.Namespace, folder: Path, figures: dict[str, list[float]]) -> None:
    app.store.migrate()
    with working(folder) as options.worker:
        for case in figures:
            found = CASES[case][0](options)
            figures[case] += found
            print(f"  {case}: {told(case, statistics.median(found))}", file=sys.stderr, flush=True)
            time.sleep(0.5)


def told(case: str, seconds: float) -> str:
    if case in COUNTED:
        return f"{seconds:,.0f}" if seconds == int(seconds) else f"{seconds:,.2f} ×"
    if seconds < 1e-3:
        return f"{1e6 * seconds:,.1f} µs"
    return f"{1e3 * seconds:,.2f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def percentile(found: list[float], share: float) -> float:
    return sorted(found)[min(int(share * len(found)), len(found) - 1)]


def run_round(
    side: str,
    options: argparse.Namespace,
    folder: Path,
    server: Server | None,
    figures: dict[str, list[float]],
) -> None:
    """Measure one store or one peer once."""
    if side in peers.PEERS:
        for case, found in peers.measured(side, list(figures), options.large, server).items():
            figures[case] += found
    elif side == "sqlite":
        with tempfile.TemporaryDirectory(dir=folder) as place:
            one_round(f"sqlite:///{place}/jobs.db", options, folder, figures)
    else:
        assert server is not None
        database = Database(server, "bench_flows")
        database.fresh()
        try:
            one_round(database.url, options, folder, figures)
        finally:
            database.drop()


def one_round(url: str, options: argparse.Namespace, folder: Path, figures: dict[str, list[float]]) -> None:
    """Measure in a process of its own, because an app has one store."""
    words = [sys.executable, "-m", "bench.flows", "--round", "--only", ",".join(figures)]
    words += ["--large", str(options.large), "--signals", str(options.signals), "--stores", str(folder)]
    words += ["--waiting", str(options.waiting)]
    env = os.environ | {"TIDEMILL_STORE": url}
    done = subprocess.run(words, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE)
    for case, found in json.loads(done.stdout).items():
        figures[case] += found


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", metavar="URL", help="server to use instead of a private one")
    parser.add_argument("--stores", default="postgres,sqlite")
    parser.add_argument(
        "--peers", default="dbos,celery", help="other systems to measure; none: an empty text"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--signals", type=int, default=20)
    parser.add_argument("--large", type=int, default=10_000)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--round", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := sorted(set(options.only.split(",")) - CASES.keys()):
        parser.error(f"unknown case {unknown[0]!r}; expected one of {', '.join(CASES)}")
    return options


def main() -> None:
    options = read_options()
    if options.round:
        figures: dict[str, list[float]] = {case: [] for case in options.only.split(",")}
        measured(options, Path(options.stores), figures)
        print(json.dumps(figures))
        return
    sides = [
        *options.stores.split(","),
        *peers.installed([name for name in options.peers.split(",") if name]),
    ]
    results = {side: {case: list[float]() for case in options.only.split(",")} for side in sides}
    before = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server: Server | None = None
        if "postgres" in sides:
            url = options.postgres or stack.enter_context(running_postgres(fsync=True)).url("postgres")
            server = Server(url)
            stack.callback(server.close)
        for _ in range(options.rounds):
            for side in sides:
                run_round(side, options, folder, server, results[side])
    print(f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after")
    for side, figures in results.items():
        show(side, figures, results)
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))


def show(side: str, figures: dict[str, list[float]], results: dict[str, dict[str, list[float]]]) -> None:
    """Print the figures of one side, with its bars and the medians of the peers."""
    print(f"\n{side}: median (range), highest acceptable")
    for case, found in figures.items():
        if not found:
            continue
        middle = statistics.median(found)
        line = f"  {case:17} {told(case, middle):>11} ({told(case, min(found))} – {told(case, max(found))})"
        bar = CASES[case][1].get(side)
        if bar is not None:
            line += f"  <= {told(case, bar)}  {'met' if middle <= bar else 'MISSED'}"
        for peer in peers.PEERS if side not in peers.PEERS else ():
            if theirs := results.get(peer, {}).get(case):
                line += f"; {peer} {told(case, statistics.median(theirs))}"
        print(line)
        if case == "signal":
            p99 = percentile(found, 0.99)
            print(f"  {'signal, p99':17} {told(case, p99):>11}  <= {told(case, SIGNAL_P99)}")


if __name__ == "__main__":
    main()
