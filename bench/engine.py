"""Benchmark of Tidemill's engine, optionally compared with its peers.

    python3 dev.py bench engine [--rounds 3] [--only w3,w5] [--postgres URL] [--into FOLDER --names a,b] [--quick] [--json FILE]

Workloads: W1 enqueue one by one, W2 in bulk; W3 drain by one worker (also with concurrency 10, and on SQLite), W4 by two; W5 latency
of a job every 50 ms; W6 an idle worker; W7 memory and start-up, read from W3; W8 drains with additional finished or pending jobs;
W9 loops in as many processes as cores, W10 threads that block, W11 coroutines that wait, each as a share of the same work without jobs;
W13 jobs that log ten lines and report progress, W14 latency of a worker whose threads are busy for 70 % of their time.
Every round measures all sides in turn, every second round in reverse order; ratios are computed within a round. Tidemill runs as
``tidemill worker``, or with ``--embedded`` as a worker inside a small program. Peers run if ``--into`` names the folder where
``bench.peers.install`` installed them; ``dev.py bench peers`` writes the page of all of them. ``others`` is the number of cores
that other processes used during a measurement. Linux only.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import engine_table as show
from bench.engine_loads import Rig
from bench.engine_run import WORKLOADS, Plan, Run, document, postgres_peers, say
from bench.engine_sides import Failed, Side, tidemill
from bench.engine_storage import Database, File, Server
from bench.peers.listing import PEERS
from bench.peers.redis import RedisServer, running_redis
from bench.peers.sides import peers
from tests.servers.postgres import running_postgres
from tests.servers.processes import ServiceMissing

USUAL = (
    "pgqueuer",
    "graphile-worker-batch",
    "graphile-worker",
    "huey-sqlite",
    "procrastinate",
    "pg-boss",
    "oban",
)
POSTGRES_SETTINGS = {"shared_buffers": "1GB"}
_ORDER = ("postgres", "sqlite", "redis")


@dataclass(frozen=True)
class Stage:
    """The servers and the folder of a run."""

    scratch: Path
    server: Server | None
    redis: RedisServer | None


@contextmanager
def stage(options: argparse.Namespace, names: Sequence[str]) -> Iterator[Stage]:
    """Start the servers that the sides need; stop and remove everything afterwards."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tm-engine-")))
        server = redis = None
        if "postgres" in options.stores:
            url = options.postgres
            if url is None:
                private = running_postgres(fsync=True, settings=POSTGRES_SETTINGS)
                url = stack.enter_context(private).url()
            server = Server(url)
            stack.callback(server.close)
        if options.into and any(name in PEERS and PEERS[name].store == "redis" for name in names):
            try:
                redis = RedisServer(options.redis or stack.enter_context(running_redis()))
            except ServiceMissing as missing:
                say(f"Redis is not available: {missing}")
        yield Stage(scratch, server, redis)


def sides_of(options: argparse.Namespace, set_: Stage, names: Sequence[str]) -> tuple[list[Side], list[str]]:
    """Return the sides, Tidemill first on each store, and a sentence for each peer that is left out."""
    sides, left_out = list[Side](), list[str]()
    if set_.server is not None:
        storage = Database(set_.server, "bench_engine_tidemill")
        sides.append(tidemill(storage, show.OURS, embedded=options.embedded))
    if "sqlite" in options.stores:
        ours = File(set_.scratch / "tidemill")
        sides.append(tidemill(ours, show.OURS_SQLITE, embedded=options.embedded))
    for side in sides:
        # pip compiled the peers at installation. A checkout, or a package installed by uv, is compiled at every start
        # unless the first start, which is not measured, may write the compiled files.
        side.words |= {"PYTHONPYCACHEPREFIX": str(set_.scratch / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    if options.into:
        chosen = [name for name in names if name not in PEERS or PEERS[name].store in options.stores]
        theirs, left_out = peers(chosen, options.into, set_.server, set_.redis, set_.scratch)
        sides += theirs
    for sentence in left_out:
        say(f"left out: {sentence}")
    return sorted(sides, key=lambda side: _ORDER.index(side.storage.kind)), left_out


def rig_of(options: argparse.Namespace, set_: Stage) -> Rig:
    quick = options.quick
    return Rig(
        set_.scratch,
        set_.server,
        jobs=options.jobs,
        processes=options.processes,
        concurrency=options.concurrency,
        pending=10_000 if quick else 200_000,
        finished=20_000 if quick else 1_000_000,
        seconds=1.0 if quick else 10.0,
        settling=2.0 if quick else options.settling,
        window=3.0 if quick else 15.0,
        work_seconds=0.5 if quick else 3.0,
    )


def measure(options: argparse.Namespace, set_: Stage, sides: Sequence[Side]) -> Run:
    say(f"sides: {', '.join(side.name for side in sides)}")
    plan = Plan(options.only, options.rounds, options.seconds, options.limit)
    run = Run(plan, rig_of(options, set_), sides)
    run.run()
    return run


def text(run: Run) -> str:
    """Return the complete report."""
    parts = [
        show.table(show.COLUMNS[what][0], run.results[what], show.COLUMNS[what][1])
        for what in sorted(run.results, key=lambda what: int(what.removeprefix("w")))
    ]
    summary = "\n".join(check.line() for check in show.checks(run.results, postgres_peers(run.sides)))
    busy, all_ = show.unquiet(run.results)
    parts.append(
        f"Summary: median, range over the rounds, target (ratios: Tidemill divided by the other side in the same round)\n{summary}"
    )
    if busy:
        parts.append(
            f"Other processes used more than {show.NOISY:g} core in {busy} of {all_} measurements: do not quote these figures."
        )
    if run.failures:
        parts.append("Failures\n" + "\n".join(f"  {failure}" for failure in run.failures))
    return "\n\n".join(parts)


def add_options(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """Add the options of every run of the comparison."""
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, for example w3,w5")
    parser.add_argument(
        "--stores",
        default="postgres,sqlite,redis",
        type=lambda words: words.split(","),
        help="stores of the sides",
    )
    parser.add_argument(
        "--postgres", help="server to use instead of a private one; databases are created there"
    )
    parser.add_argument(
        "--redis", help="server to use instead of a private one; DATABASES 1 AND HIGHER ARE EMPTIED"
    )
    parser.add_argument("--into", type=Path, help="folder where bench.peers.install installed the peers")
    parser.add_argument("--names", default=",".join(names), help="peers to measure, if they are installed")
    parser.add_argument("--limit", type=Path, help="program to use as the yardstick of the drains")
    parser.add_argument("--processes", type=int, default=1, help="runner processes of W3, W5 and W6")
    parser.add_argument("--concurrency", type=int, default=1_000, help="concurrency of Tidemill's drains")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of a drain")
    parser.add_argument("--seconds", type=float, default=2.0, help="of W1")
    parser.add_argument(
        "--embedded", action="store_true", help="measure a worker embedded in a small program"
    )
    parser.add_argument("--quick", action="store_true", help="small numbers and one round, as a smoke test")
    parser.add_argument(
        "--settling",
        type=float,
        default=6.0,
        help="seconds before the window of W6; counters lag by up to 10 s, so 12 excludes the start-up",
    )


def read_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    options = parser.parse_args()
    given = [word for word in options.only.split(",") if word]
    if unknown := sorted(set(given) - {*WORKLOADS, "w7"}):
        parser.error(f"unknown workload {unknown[0]!r}; expected one of {', '.join([*WORKLOADS, 'w7'])}")
    options.only = [what for what in WORKLOADS if what in given or (what == "w3" and "w7" in given)]
    options.names = [name for name in options.names.split(",") if name]
    if unknown := sorted(set(options.names) - set(PEERS)):
        parser.error(f"unknown peer {unknown[0]!r}; expected one of {', '.join(PEERS)}")
    if options.quick:
        options.rounds, options.seconds, options.jobs = 1, 0.5, min(options.jobs, 1_000)
    return options


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, USUAL)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = read_options(parser)
    # Exits through the context managers, which stop the workers.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    with stage(options, options.names) as set_:
        try:
            sides, _ = sides_of(options, set_, options.names)
            run = measure(options, set_, sides)
        except Failed as failure:
            raise SystemExit(f"bench engine: {failure}") from None
        print(text(run))
        if options.json:
            options.json.write_text(json.dumps(document(run), indent=1) + "\n")


if __name__ == "__main__":
    main()
