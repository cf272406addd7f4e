"""Tidemill's engine beside its peers in one run: workloads W1 to W8, round by round, medians, ratios and the aims.

    python3 dev.py bench engine [--rounds 3] [--only w3,w5] [--postgres URL] [--peers FOLDER --venvs FOLDER] [--quick] [--json FILE]

W1 enqueue one by one, W2 in bulk; W3 drain by one worker (also with concurrency 10, and on SQLite), W4 by two; W5 latency of a job
every 50 ms; W6 an idle worker; W7 memory and start-up, read from W3; W8 drains with finished and pending jobs beside. Every round
measures all sides in turn, every other one backwards; ratios are taken within a round. Tidemill is run by ``tidemill worker``,
``--embedded`` by a worker inside a small program. Without ``--peers`` only Tidemill and the yardsticks run. The peers' programs
expect their server and environments in fixed places. ``others`` are the cores that anybody else used meanwhile. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
from bench import engine_loads as loads
from bench import engine_table as show
from bench import yardstick
from bench.engine_ground import Database, File, Server
from bench.engine_loads import Figures, Rig
from bench.engine_sides import WANTED, Failed, Side, peers, tidemill

from tidemill.testing.postgres import running_postgres

Entry = tuple[str, Callable[[], Figures]]
Found = dict[str, list[Figures | None]]

WORKLOADS = ("w1", "w2", "w3", "w4", "w5", "w6", "w8")
_TROUBLE = (Failed, OSError, subprocess.SubprocessError, psycopg.Error, AssertionError)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Run:
    """All sides, all workloads; what failed is noted and the rest goes on."""

    def __init__(self, options: argparse.Namespace, rig: Rig, sides: Sequence[Side]) -> None:
        self.options, self.rig, self.sides = options, rig, sides
        self.failures: list[str] = []
        self.results: dict[str, Found] = {}

    def run(self) -> None:
        for what in self.options.only:
            if what == "w6":
                self.results[what] = self._idle()
            else:
                self.results[what] = self._rounds(what, list(self._entries(what)))
        if "w3" in self.results:
            self.results["w7"] = {
                name: found
                for name, found in self.results["w3"].items()
                if show.values({name: found}, name, "rss_mb")
            }

    def _rounds(self, what: str, entries: Sequence[Entry]) -> Found:
        found: Found = {name: [] for name, _ in entries}
        for number in range(self.options.rounds):
            for name, act in entries if number % 2 == 0 else reversed(entries):
                found[name].append(self._tried(f"{what} {number + 1}/{self.options.rounds} {name}", act))
        return found

    def _tried(self, what: str, act: Callable[[], Figures]) -> Figures | None:
        try:
            figures = act()
        except _TROUBLE as error:
            self.failures.append(f"{what}: {error}")
            say(f"  {what}: FAILED: {error}")
            return None
        say(f"  {what}: " + ", ".join(f"{name} {value:,.4g}" for name, value in figures.items()))
        return figures

    def _idle(self) -> Found:
        found: Found = {side.name: [] for side in self.sides}
        for number in range(self.options.rounds):
            try:
                for name, figures in loads.idling(self.rig, self.sides).items():
                    found[name].append(figures)
                    say(
                        f"  w6 {number + 1} {name}: " + ", ".join(f"{k} {v:,.4g}" for k, v in figures.items())
                    )
            except _TROUBLE as error:
                self.failures.append(f"w6: {error}")
                say(f"  w6: FAILED: {error}")
        return found

    # What is measured in a round --------------------------------------------------------------------------------------

    def _entries(self, what: str) -> Iterator[Entry]:
        if what in ("w3", "w4"):
            yield from self._drains(1 if what == "w3" else 2)
        elif what == "w8":
            yield from self._scales()
        else:
            for side in self.sides:
                if what == "w1":
                    yield side.name, partial(loads.enqueueing, self.rig, side, ("w1", self.options.seconds))
                elif what == "w2" and side.bulk:
                    yield side.name, partial(loads.enqueueing, self.rig, side, ("w2", self.rig.jobs_of(side)))
                elif what == "w5":
                    yield side.name, partial(loads.latency, self.rig, side)

    def _drains(self, workers: int) -> Iterator[Entry]:
        rig, before = self.rig, ""
        for side in self.sides:
            store = "postgres" if side.on_postgres else "sqlite"
            if store != before:
                yield from self._sticks(store, workers)
                before = store
            processes = workers * (rig.processes if side.ours and workers == 1 else 1)
            yield side.name, partial(loads.drain, rig, side, processes=processes, concurrency=rig.concurrency)
            if side.name == show.OURS and workers == 1:
                yield (
                    show.OURS_NARROW,
                    partial(loads.drain, rig, side, processes=rig.processes, concurrency=10),
                )

    def _sticks(self, store: str, workers: int) -> Iterator[Entry]:
        rig, limit = self.rig, self.options.limit
        if store == "postgres" and (limit is not None or workers == 1):
            yield show.STICK, partial(bare_postgres, rig, limit, workers)
        elif store == "sqlite" and workers == 1:
            yield show.STICK_SQLITE, partial(bare_sqlite, rig)

    def _scales(self) -> Iterator[Entry]:
        for side in self.sides:
            if not side.on_postgres:
                continue
            for beside in ("empty", "finished", "pending"):
                if (beside != "finished" or side.history is not None) and (beside != "pending" or side.bulk):
                    yield f"{side.name}, {beside}", partial(loads.scale, self.rig, side, beside)


def bare_postgres(rig: Rig, limit: Path | None, processes: int) -> Figures:
    """The bare statement: by the program that was given, or by our own."""
    assert rig.server is not None
    database = Database(rig.server, "bench_engine_yardstick")
    database.fresh()
    others = rig.others()
    try:
        if limit is None:
            return {"rate": yardstick.postgres(database.url, rig.jobs), "others": others.cores()}
        words = [database.url, "--procs", str(processes), "--jobs", str(rig.jobs)]
        done = subprocess.run(
            [sys.executable, str(limit), *words], capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode:
            raise Failed(f"the yardstick: {done.stderr.strip()[-800:]}")
        return {"rate": json.loads(done.stdout.splitlines()[-1])["jobs_per_s"], "others": others.cores()}
    finally:
        database.drop()


def bare_sqlite(rig: Rig) -> Figures:
    others = rig.others()
    with tempfile.TemporaryDirectory(dir=rig.scratch) as folder:
        return {"rate": yardstick.sqlite(Path(folder), rig.jobs), "others": others.cores()}


def text(run: Run) -> str:
    """Everything a reader wants."""
    parts = [
        show.table(show.COLUMNS[what][0], run.results[what], show.COLUMNS[what][1])
        for what in sorted(run.results)
    ]
    summary = "\n".join(check.line() for check in show.checks(run.results, postgres_peers(run.sides)))
    busy, all_ = show.unquiet(run.results)
    parts.append(
        f"Summary: median, range over the rounds, aim (ratios: Tidemill divided by the other in the same round)\n{summary}"
    )
    if busy:
        parts.append(
            f"Others used more than {show.NOISY:g} core in {busy} of {all_} measurements: not figures to quote."
        )
    if run.failures:
        parts.append("Failures\n" + "\n".join(f"  {failure}" for failure in run.failures))
    return "\n\n".join(parts)


def postgres_peers(sides: Sequence[Side]) -> list[str]:
    return [side.name for side in sides if side.on_postgres and not side.ours]


def document(run: Run) -> dict[str, object]:
    """The same for programs."""
    rig, server = run.rig, run.rig.server
    return {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "postgres": None if server is None else server.version,
            "load": os.getloadavg(),
        },
        "sizes": {name: value for name, value in vars(rig).items() if isinstance(value, (int, float))},
        "rounds": run.options.rounds,
        "embedded": run.options.embedded,
        "workloads": run.results,
        "checks": [check.facts() for check in show.checks(run.results, postgres_peers(run.sides))],
        "failures": run.failures,
    }


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, as w3,w5")
    parser.add_argument("--stores", default="postgres,sqlite", type=lambda words: words.split(","))
    parser.add_argument(
        "--postgres", help="a server to use instead of a private one; databases are made there"
    )
    parser.add_argument("--peers", type=Path, help="the folder of the peers' programs")
    parser.add_argument("--venvs", type=Path, default=Path(), help="the folder of their environments")
    parser.add_argument(
        "--names", default=",".join(WANTED), help="which peers, if their environment is there"
    )
    parser.add_argument(
        "--limit",
        type=Path,
        help="the yardstick's program; ../limit/limit.py beside the peers if it is there",
    )
    parser.add_argument("--processes", type=int, default=1, help="runner processes of W3, W5 and W6")
    parser.add_argument("--concurrency", type=int, default=1_000, help="of the drains")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs of a drain")
    parser.add_argument("--seconds", type=float, default=2.0, help="of W1")
    parser.add_argument(
        "--embedded", action="store_true", help="measure a worker inside a program of its own"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small numbers and one round, to see that it works"
    )
    parser.add_argument(
        "--settling",
        type=float,
        default=6.0,
        help="seconds before the window of W6; what a start-up did is counted up to 10 s late, so 12 leaves it out",
    )
    parser.add_argument("--json", type=Path, help="write everything here as well")
    options = parser.parse_args()
    given = [word for word in options.only.split(",") if word]
    if unknown := sorted(set(given) - {*WORKLOADS, "w7"}):
        parser.error(f"there is no workload {unknown[0]}; there are w1 to w8")
    options.only = [what for what in WORKLOADS if what in given or (what == "w3" and "w7" in given)]
    if options.quick:
        options.rounds, options.seconds, options.jobs = 1, 0.5, min(options.jobs, 3_000)
    if (
        options.limit is None
        and options.peers
        and (beside := options.peers.parent / "limit" / "limit.py").is_file()
    ):
        options.limit = beside
    return options


def sides_of(options: argparse.Namespace, server: Server | None, files: Path) -> list[Side]:
    """Tidemill first on each store, the peers after it."""
    ours = []
    if server is not None:
        ours.append(tidemill(Database(server, "bench_engine_tidemill"), show.OURS, embedded=options.embedded))
    if "sqlite" in options.stores:
        ours.append(tidemill(File(files / "tidemill"), show.OURS_SQLITE, embedded=options.embedded))
    names = [name for name in options.names.split(",") if name]
    theirs = peers(options.peers, options.venvs, names, server, files) if options.peers else []
    wanted = [side for side in theirs if side.on_postgres or "sqlite" in options.stores]
    return sorted([*ours, *wanted], key=lambda side: not side.on_postgres)


def measure(options: argparse.Namespace, server: Server | None, scratch: Path) -> Run:
    quick = options.quick
    rig = Rig(
        scratch,
        server,
        jobs=options.jobs,
        processes=options.processes,
        concurrency=options.concurrency,
        pending=10_000 if quick else 200_000,
        finished=20_000 if quick else 1_000_000,
        seconds=2.0 if quick else 10.0,
        settling=2.0 if quick else options.settling,
        window=3.0 if quick else 15.0,
    )
    sides = sides_of(options, server, scratch)
    say(f"sides: {', '.join(side.name for side in sides)}")
    run = Run(options, rig, sides)
    try:
        run.run()
    finally:
        for side in sides:
            side.ground.drop()
    return run


def main() -> None:
    options = read_options()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))  # workers are ended on the way out
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tm-engine-")))
        server = None
        if "postgres" in options.stores:
            url = options.postgres
            if url is None:
                url = stack.enter_context(
                    running_postgres(fsync=True, settings={"shared_buffers": "1GB"})
                ).url()
            server = Server(url)
            stack.callback(server.close)
        try:
            run = measure(options, server, scratch)
        except Failed as failure:
            raise SystemExit(f"bench engine: {failure}") from None
        print(text(run))
        if options.json:
            options.json.write_text(json.dumps(document(run), indent=1) + "\n")


if __name__ == "__main__":
    main()
