"""The cost of one job of a drain, compared with other versions.

    python3 dev.py bench instructions [--base DIR] [--count cpu,bytecode,instructions] [--stores memory,sqlite,postgres]
        [--jobs 20000] [--rounds 10] [--functions 20] [--concurrency 1000] [--json]

A wall clock cannot show a difference of 2 % on a busy machine. These figures vary less; each excludes the start-up:

- ``cpu``: microseconds of CPU time of the worker, of the server's processes (PostgreSQL), and bytes of WAL. The versions
  alternate within a round; the figures are medians of the rounds, and the ratios are medians of the ratios of a round.
- ``bytecode``: executed bytecode instructions of the worker, exact to a few in a thousand. ``--functions`` lists where.
- ``instructions``: processor instructions of the worker, counted by ``valgrind``. Minutes per store.

A no-op coroutine job is drained by a runner and its heartbeat, without duties. ``--base`` is a checkout of another version,
and may be repeated. It runs with the packages of this environment and with its own schema. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from tests.servers.postgres import PrivatePostgres, running_postgres

ROOT = Path(__file__).resolve().parent.parent
LOAD = ROOT / "bench" / "instructions_load.py"
STORES = ("memory", "sqlite", "postgres")
COUNTS = ("cpu", "bytecode", "instructions")
COUNTER = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
_COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")
_SETTINGS = {"shared_buffers": "1GB", "autovacuum": "off"}  # a vacuum would count for one of the versions

Figures = dict[str, float]
"""Figures of one job by name."""


class Version:
    """A checkout of Tidemill."""

    def __init__(self, name: str, root: Path, scratch: Path) -> None:
        self.name = name
        # The hash seed is fixed, because the layout of dictionaries changes the count. Compiled files are kept apart,
        # so that only the first start of a version compiles.
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(root / "src"),
            "PYTHONHASHSEED": "0",
            "PYTHONPYCACHEPREFIX": str(scratch / f"compiled-{name}"),
            "PYTHONDONTWRITEBYTECODE": "",
        }

    def load(self, *words: object) -> dict[str, Any]:
        """Run the load; return its figures."""
        figures: dict[str, Any] = json.loads(self._run([], words).stdout)
        return figures

    def counted(self, *words: object) -> int:
        """Run the load under valgrind; return the number of its instructions."""
        ran = self._run(COUNTER, (*words, "--count"))
        counted = _COUNTED.search(ran.stderr)
        if counted is None:
            raise SystemExit(f"valgrind printed no count: {ran.stderr[-600:]}")
        return int(counted[1].replace(",", ""))

    def _run(self, counter: Sequence[str], words: Sequence[object]) -> subprocess.CompletedProcess[str]:
        command = [*counter, sys.executable, str(LOAD), *map(str, words)]
        ran = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise SystemExit(f"{self.name}: the load failed: {ran.stderr[-2_000:]}")
        return ran


class Stores:
    """New, empty stores. The PostgreSQL server starts when it is needed first."""

    def __init__(self, scratch: Path, stack: ExitStack) -> None:
        self._scratch, self._stack = scratch, stack
        self._numbers = count()
        self._server: PrivatePostgres | None = None

    @property
    def server(self) -> PrivatePostgres:
        if self._server is None:
            self._server = self._stack.enter_context(running_postgres(settings=_SETTINGS))
        return self._server

    def url(self, kind: str) -> str:
        if kind == "memory":
            return "memory://"
        name = f"instructions{next(self._numbers)}"
        if kind == "sqlite":
            return f"sqlite:///{self._scratch / name}.db"
        return self.server.create_database(name)

    def drop(self, url: str) -> None:
        name = url.rpartition("/")[2]
        if url.startswith("sqlite"):
            for file in self._scratch.glob(f"{name}*"):
                file.unlink()
        elif url.startswith("postgres"):
            self.server.drop_database(name)


@dataclass(frozen=True)
class Bench:
    """The measurements of one job, in these stores."""

    stores: Stores
    jobs: int
    concurrency: int

    def cpu(self, version: Version, kind: str) -> Figures:
        """Return microseconds of CPU time, and bytes of WAL."""
        url, jobs = self.stores.url(kind), self.jobs
        server: list[object] = []
        written = 0
        if kind == "postgres":
            server = ["--server", self.stores.server.pids[0]]
        version.load("fill", url, jobs)
        if server:
            written = self._written()
        figures = version.load("drain", url, jobs, self.concurrency, *server)
        result = {"worker": figures["cpu"] * 1e6 / jobs}
        if server:
            result |= {"server": figures["server"] * 1e6 / jobs, "wal": (self._written() - written) / jobs}
            result["both"] = result["worker"] + result["server"]
        self.stores.drop(url)
        return result

    def _written(self) -> int:
        return int(
            self.stores.server.ask("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        )

    def bytecode(self, version: Version, kind: str) -> Figures:
        """Return executed bytecode instructions by function."""
        url, jobs = self.stores.url(kind), self.jobs
        version.load("fill", url, jobs)
        functions = version.load("drain", url, jobs, self.concurrency, "--bytecode")["functions"]
        self.stores.drop(url)
        return {name: number / jobs for name, number in functions.items()}

    def instructions(self, version: Version, kind: str) -> Figures:
        """Return processor instructions. Two drains of different length exclude the start-up."""
        few, many = (self._drained(version, kind, number) for number in (self.jobs // 6, self.jobs))
        return {"instructions": (many - few) / (self.jobs - self.jobs // 6)}

    def _drained(self, version: Version, kind: str, jobs: int) -> int:
        url = self.stores.url(kind)
        version.load("fill", url, jobs)
        instructions = version.counted("drain", url, jobs, self.concurrency)
        self.stores.drop(url)
        # The process that drains a memory store also fills it.
        return instructions - version.counted("fill", url, jobs) if kind == "memory" else instructions


def alternating(
    measure: Callable[[Version, str], Figures], versions: Sequence[Version], kind: str, rounds: int
) -> dict[str, list[Figures]]:
    """Measure all versions in turn, every second round in reverse order."""
    results: dict[str, list[Figures]] = {version.name: [] for version in versions}
    for number in range(rounds):
        for version in versions if number % 2 == 0 else reversed(versions):
            results[version.name].append(measure(version, kind))
    return results


def table(kind: str, results: dict[str, list[Figures]]) -> Iterator[str]:
    """Yield the lines of one store: each figure of each version, and the ratio of this version to it."""
    here = results["here"]
    for name, rounds in results.items():
        for figure in rounds[0]:
            ratios = [ours[figure] / theirs[figure] for ours, theirs in zip(here, rounds, strict=True)]
            ratio = "" if name == "here" else f"{median(ratios):>9.3f}"
            yield f"{kind:<10}{figure:<14}{name:<14}{median(values[figure] for values in rounds):>12,.1f}{ratio}"


def functions_table(kind: str, results: dict[str, Figures], shown: int) -> Iterator[str]:
    """Yield the functions that execute most bytecode instructions in this version."""
    for function, number in sorted(results["here"].items(), key=lambda entry: -entry[1])[:shown]:
        others = "".join(f"{figures.get(function, 0.0):>12,.1f}" for figures in results.values())
        yield f"{kind:<10}{others}  {function}" if number else ""


def measured(
    options: argparse.Namespace, bench: Bench, versions: Sequence[Version], what: str, kind: str
) -> dict[str, list[Figures]]:
    """Measure one store, and print the functions if they are wanted."""
    if what == "cpu":
        return alternating(bench.cpu, versions, kind, options.rounds)
    if what == "instructions":
        return alternating(bench.instructions, versions, kind, 1)
    functions = {version.name: bench.bytecode(version, kind) for version in versions}
    if options.functions and not options.json:
        print("\n".join(functions_table(kind, functions, options.functions)))
    return {name: [{"bytecode": sum(figures.values())}] for name, figures in functions.items()}


def read_list(known: Sequence[str], noun: str) -> Callable[[str], list[str]]:
    def read(words: str) -> list[str]:
        chosen = words.split(",")
        if unknown := sorted(set(chosen) - set(known)):
            raise argparse.ArgumentTypeError(
                f"unknown {noun} {unknown[0]!r}; expected one of {', '.join(known)}"
            )
        return chosen

    return read


def read_base(words: str) -> Path:
    if not (Path(words) / "src" / "tidemill").is_dir():
        raise argparse.ArgumentTypeError(f"{words} is not a checkout of Tidemill: it has no src/tidemill")
    return Path(words).resolve()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--base", type=read_base, action="append", default=[], help="checkout of a version to compare with"
    )
    parser.add_argument(
        "--count", type=read_list(COUNTS, "figure"), default="cpu,bytecode", help="figures to measure"
    )
    parser.add_argument(
        "--stores", type=read_list(STORES, "store"), default=",".join(STORES), help="stores to measure"
    )
    parser.add_argument(
        "--jobs", type=int, default=20_000, help="jobs of a drain; a tenth of it for exact counts"
    )
    parser.add_argument("--rounds", type=int, default=10, help="rounds of cpu")
    parser.add_argument("--functions", type=int, default=0, help="functions to list with bytecode")
    parser.add_argument("--concurrency", type=int, default=1_000)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    if "instructions" in options.count and shutil.which(COUNTER[0]) is None:
        parser.error("valgrind is not installed (Debian: apt install valgrind)")
    return options


def main() -> None:
    options = read_options()
    if not options.json:
        print(f"{'store':<10}{'figure':<14}{'version':<14}{'per job':>12}{'ratio':>9}", flush=True)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tm-instructions-")))
        versions = [Version("here", ROOT, scratch)]
        versions += [Version(base.name, base, scratch) for base in options.base]
        stores = Stores(scratch, stack)
        results = dict[str, dict[str, dict[str, list[Figures]]]]()
        for what in options.count:
            jobs = options.jobs if what == "cpu" else options.jobs // 10
            bench = Bench(stores, jobs, options.concurrency)
            results[what] = {}
            for kind in options.stores:
                results[what][kind] = measured(options, bench, versions, what, kind)
                if not options.json:
                    print("\n".join(table(kind, results[what][kind])), flush=True)
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
