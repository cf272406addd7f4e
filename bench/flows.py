"""Benchmark of flows and durable functions.

    python3 dev.py bench flows [--postgres URL] [--stores postgres,sqlite] [--rounds 3] [--signals 20] [--only chain,…]
                               [--large 10000] [--json FILE]

Every round has a new database, and one process of ``tidemill worker`` that is idle before each case:

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
- ``commit``: one small write with its commit, for comparison: most cases wait for the disk once or several times

``--large`` replaces 10,000. The figures are medians of all rounds, and of all signals.
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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.engine_storage import Database, Server
from bench.flows_app import answered, app, count, failed, link, many_steps, resumed, steps
from tests.servers.postgres import running_postgres

from tidemill import Node, each
from tidemill.domain.records import Setting

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 300.0
SIGNAL_P99 = 0.015


def started(nodes: int) -> Callable[[argparse.Namespace], list[float]]:
    def measure(options: argparse.Namespace) -> list[float]:
        number = min(nodes, options.large)
        flow = app.flow("start")
        flow.map(link.using(queue="nobody"), number=each(list(range(number))))
        began = time.perf_counter()
        flow.start()
        return [time.perf_counter() - began]

    return measure


def chained(options: argparse.Namespace) -> list[float]:
    del options
    flow = app.flow("chain")
    flow.chain(*([link.call()] + [link] * 999))
    return [ended(flow.start())]


def joined(nodes: int) -> Callable[[argparse.Namespace], list[float]]:
    def measure(options: argparse.Namespace) -> list[float]:
        number = min(nodes, options.large)
        flow = app.flow("out and in")
        mapped = flow.map(link, number=each(list(range(number))))
        flow.returns(flow.add(count, parts=mapped.results).result)
        run = flow.start()
        took = ended(run)
        assert run.result() == number
        return [took]

    return measure


def ended(run: Any) -> float:
    """Return the seconds from now to the end of the flow."""
    began = time.time()
    run.result(timeout=PATIENCE)
    return float(run.row.ended_at.timestamp() - began)


def stepped(options: argparse.Namespace) -> list[float]:
    del options
    return [steps.enqueue(count=1_000).result(timeout=PATIENCE)]


def counted(options: argparse.Namespace) -> list[float]:
    flow = app.flow("members")
    flow.map(link, number=each(list(range(options.large))))
    return [ended(flow.start()) / options.large]


def stepped_together(options: argparse.Namespace) -> list[float]:
    del options
    began = time.perf_counter()
    jobs = [many_steps.enqueue(count=100) for _ in range(100)]
    for job in jobs:
        job.result(timeout=PATIENCE)
    return [(time.perf_counter() - began) / 10_000]


def cancelled(options: argparse.Namespace) -> list[float]:
    flow = app.flow("cancel")
    first = flow.add(link.using(queue="nobody"))
    flow.map(link.using(queue="nobody"), number=each(list(range(options.large)))).after(first)
    run = flow.start()
    began = time.time()
    run.cancel("no longer wanted")
    return [end_of(run) - began]


def skipped(options: argparse.Namespace) -> list[float]:
    del options
    flow = app.flow("skip")
    last: Node[Any] = flow.add(failed)
    for _ in range(999):
        last = flow.add(link).after(last)
    run = flow.start()
    (first,) = [node for node in run.nodes() if node.name == "failed"]
    finished = end_of(run)
    began = first.job.refresh().row.finished_at
    assert began is not None
    return [finished - began.timestamp()]


def end_of(run: Any) -> float:
    """Wait until the flow has ended, however that was, and return the time of its end."""
    deadline = time.monotonic() + PATIENCE
    while (ended_at := run.refresh().row.ended_at) is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"{run} does not end")
        time.sleep(0.02)
    return float(ended_at.timestamp())


def committed(options: argparse.Namespace) -> list[float]:
    del options
    took: list[float] = []
    for number in range(200):
        began = time.perf_counter()
        app.store.put_settings([Setting("bench.commit", number)])
        took.append(time.perf_counter() - began)
    app.store.drop_settings(["bench.commit"])
    return [statistics.median(took)]


def replayed(options: argparse.Namespace) -> list[float]:
    del options
    return [resumed.enqueue(count=1_000).result(timeout=PATIENCE)]


def signalled(options: argparse.Namespace) -> list[float]:
    return [one_signal() for _ in range(options.signals)]


def one_signal() -> float:
    job = answered.enqueue()
    deadline = time.monotonic() + PATIENCE
    while job.refresh().row.state != "waiting":
        if time.monotonic() > deadline:
            raise SystemExit(f"{job} does not wait")
        time.sleep(0.02)
    time.sleep(0.1)
    sent = time.time()
    app.signal(job, "go")
    return float(job.result(timeout=PATIENCE)) - sent


CASES: dict[str, tuple[Callable[[argparse.Namespace], list[float]], dict[str, float]]] = {
    "start-100": (started(100), {"postgres": 0.005, "sqlite": 0.005}),
    "start-10000": (started(10_000), {"postgres": 0.25, "sqlite": 0.25}),
    "chain-1000": (chained, {"postgres": 1.5, "sqlite": 1.5}),
    "out-and-in-1000": (joined(1_000), {"postgres": 0.2, "sqlite": 0.2}),
    "out-and-in-10000": (joined(10_000), {"postgres": 1.0, "sqlite": 1.2}),
    "member": (counted, {"postgres": 1 / 45_000, "sqlite": 1 / 25_000}),
    "step": (stepped, {"postgres": 0.0005, "sqlite": 0.0005}),
    "step-of-100": (stepped_together, {"postgres": 1 / 20_000, "sqlite": 1 / 15_000}),
    "resume-1000": (replayed, {"postgres": 0.005, "sqlite": 0.005}),
    "signal": (signalled, {"postgres": 0.005, "sqlite": 0.005}),
    "cancel-10000": (cancelled, {"postgres": 1.0, "sqlite": 1.0}),
    "skip-1000": (skipped, {"postgres": 2.0, "sqlite": 2.0}),
    "commit": (committed, {}),
}
"""Each case with the highest acceptable seconds per store, if there is such a bar."""


@contextmanager
def working(folder: Path) -> Iterator[None]:
    """Run ``tidemill worker`` until the block ends."""
    words = ["worker", "bench.flows_app:app", "--concurrency", "200"]
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "tidemill", *words],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
        try:
            link.enqueue().result(timeout=60)
            yield
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)


def measured(options: argparse.Namespace, folder: Path, figures: dict[str, list[float]]) -> None:
    app.store.migrate()
    with working(folder):
        for case in figures:
            found = CASES[case][0](options)
            figures[case] += found
            print(f"  {case}: {told(statistics.median(found))}", file=sys.stderr, flush=True)
            time.sleep(0.5)


def told(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:,.1f} µs"
    return f"{1e3 * seconds:,.2f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def percentile(found: list[float], share: float) -> float:
    return sorted(found)[min(int(share * len(found)), len(found) - 1)]


def run_store(name: str, options: argparse.Namespace, folder: Path, server: Server | None) -> dict[str, Any]:
    figures: dict[str, list[float]] = {case: [] for case in CASES if case in options.only.split(",")}
    for _ in range(options.rounds):
        if name == "sqlite":
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
    return figures


def one_round(url: str, options: argparse.Namespace, folder: Path, figures: dict[str, list[float]]) -> None:
    """Measure in a process of its own, because an app has one store."""
    words = [sys.executable, "-m", "bench.flows", "--round", "--only", ",".join(figures)]
    words += ["--large", str(options.large), "--signals", str(options.signals), "--stores", str(folder)]
    env = os.environ | {"TIDEMILL_STORE": url}
    done = subprocess.run(words, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE)
    for case, found in json.loads(done.stdout).items():
        figures[case] += found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", metavar="URL", help="server to use instead of a private one")
    parser.add_argument("--stores", default="postgres,sqlite")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--signals", type=int, default=20)
    parser.add_argument("--large", type=int, default=10_000)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--round", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.round:
        figures: dict[str, list[float]] = {case: [] for case in options.only.split(",")}
        measured(options, Path(options.stores), figures)
        print(json.dumps(figures))
        return
    results: dict[str, dict[str, list[float]]] = {}
    before = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server: Server | None = None
        if "postgres" in options.stores:
            url = options.postgres or stack.enter_context(running_postgres(fsync=True)).url("postgres")
            server = Server(url)
            stack.callback(server.close)
        for name in options.stores.split(","):
            results[name] = run_store(name, options, folder, server)
    print(f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after")
    for name, figures in results.items():
        print(f"\n{name}: median (range), highest acceptable")
        for case, found in figures.items():
            line = (
                f"  {case:17} {told(statistics.median(found)):>11} ({told(min(found))} – {told(max(found))})"
            )
            bar = CASES[case][1].get(name)
            if bar is not None:
                line += f"  <= {told(bar)}  {'met' if statistics.median(found) <= bar else 'MISSED'}"
            print(line)
            if case == "signal":
                print(f"  {'signal, p99':17} {told(percentile(found, 0.99)):>11}  <= {told(SIGNAL_P99)}")
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
