"""Processor instructions per job of a drain, compared with another version.

    python3 dev.py bench instructions [--base DIR] [--stores memory,sqlite,postgres] [--jobs 1000,6000] [--concurrency 1000] [--json]

A wall clock cannot show a difference of 2 % on a busy machine, but the number of executed instructions hardly varies.
Valgrind counts those of a process that drains no-op coroutine jobs. Two drains of different length give the cost of one
job: the difference excludes the start-up. ``--base`` is a checkout of the other version. It runs with the packages of
this environment and with its own schema. The server's share of PostgreSQL is not counted. Linux with ``valgrind`` only.
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
from itertools import count
from pathlib import Path

from tests.servers.postgres import TestPostgres, running_postgres

ROOT = Path(__file__).resolve().parent.parent
LOAD = ROOT / "bench" / "instructions_load.py"
STORES = ("memory", "sqlite", "postgres")
COUNTER = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
_COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")

Locate = Callable[[str], str]
"""Returns the URL of a new, empty store of this kind."""


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

    def load(self, *words: object) -> str:
        """Run the load without counting; return its output."""
        return self._run([], words).stdout

    def counted(self, *words: object) -> int:
        """Run the load; return the number of its instructions."""
        ran = self._run(COUNTER, words)
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


def drained(version: Version, kind: str, jobs: int, concurrency: int, locate: Locate) -> int:
    """Return the instructions of a drain, including the start of the process."""
    url = locate(kind)
    version.load("fill", url, jobs)
    instructions = version.counted("drain", url, jobs, concurrency)
    # The process that drains a memory store also fills it.
    return instructions - version.counted("fill", url, jobs) if kind == "memory" else instructions


def per_job(version: Version, kind: str, jobs: tuple[int, int], concurrency: int, locate: Locate) -> float:
    """Return the instructions of one job."""
    # The first drain compiles modules, which must not count for one of the two.
    url = locate(kind)
    version.load("fill", url, jobs[0])
    version.load("drain", url, jobs[0], concurrency)
    few, many = (drained(version, kind, number, concurrency, locate) for number in jobs)
    return (many - few) / (jobs[1] - jobs[0])


def locator(scratch: Path, stack: ExitStack) -> Locate:
    """Return a function that creates stores. The server starts when it is needed first."""
    numbers, servers = count(), list[TestPostgres]()

    def locate(kind: str) -> str:
        if kind == "memory":
            return "memory://"
        name = f"instructions{next(numbers)}"
        if kind == "sqlite":
            return f"sqlite:///{scratch / name}.db"
        if not servers:
            servers.append(stack.enter_context(running_postgres()))
        return servers[0].create_database(name)

    return locate


def read_counts(words: str) -> tuple[int, int]:
    try:
        few, many = map(int, words.split(","))
    except ValueError:
        few = many = 0
    if not 0 < few < many:
        raise argparse.ArgumentTypeError(f"{words!r} is not a smaller and a larger number, such as 1000,6000")
    return few, many


def lines(results: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield the report."""
    for kind, figures in results.items():
        base = figures.get("base")
        ratio = "" if base is None else f"{base:>14,.0f}{figures['here'] / base:>9.3f}"
        yield f"{kind:<10}{figures['here']:>14,.0f}{ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", type=Path, help="checkout of the version to compare with")
    parser.add_argument("--stores", default=",".join(STORES), help="stores to measure")
    parser.add_argument(
        "--jobs", type=read_counts, default=(1_000, 6_000), help="jobs of the short and of the long drain"
    )
    parser.add_argument("--concurrency", type=int, default=1_000)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    stores = options.stores.split(",")
    if unknown := sorted(set(stores) - set(STORES)):
        parser.error(f"unknown store {unknown[0]!r}; expected one of {', '.join(STORES)}")
    if options.base is not None and not (options.base / "src" / "tidemill").is_dir():
        parser.error(f"{options.base} is not a checkout of Tidemill: it has no src/tidemill")
    if shutil.which(COUNTER[0]) is None:
        parser.error("valgrind is not installed (Debian: apt install valgrind)")
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tm-instructions-")))
        versions = [Version("here", ROOT, scratch)]
        if options.base is not None:
            versions.append(Version("base", options.base.resolve(), scratch))
        locate = locator(scratch, stack)
        results = {
            kind: {
                version.name: per_job(version, kind, options.jobs, options.concurrency, locate)
                for version in versions
            }
            for kind in stores
        }
    if options.json:
        print(json.dumps(results, indent=1))
        return
    print(f"{'':<10}{'instructions':>14}" + ("" if options.base is None else f"{'base':>14}{'ratio':>9}"))
    print("\n".join(lines(results)))


if __name__ == "__main__":
    main()
