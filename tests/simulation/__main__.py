"""The command line of the simulation.

``python -m tests.simulation --seeds 1000 [--from N]`` runs many seeds, ``--seed K --trace`` replays one. It prints each seed that
violated an invariant with the command that replays it, and then exits with 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.simulation.simulation import OpenStore, RunResult, run
from tests.simulation.wrong_stores import WRONG

from tidemill.clock import Clock, SystemClock
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store


@contextmanager
def opener(store: str, wrong: str | None) -> Iterator[OpenStore]:
    """Yield a function that opens a new, empty store for each run."""
    if wrong is not None:
        yield WRONG[wrong][0]
    elif store == "memory":
        yield MemoryStore
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield in_files(folder)


def in_files(folder: str) -> OpenStore:
    """Return a function that opens a new SQLite file in a folder."""
    opened: Counter[str] = Counter()

    def fresh(clock: Clock) -> Store:
        opened["files"] += 1
        return open_store(f"sqlite:///{folder}/{opened['files']}.db?synchronous=normal", clock=clock)

    return fresh


def main(write: Callable[[str], None] = print) -> int:
    """Run the seeds that the command line names; return how many violated an invariant."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="N", help="first seed")
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--trace", action="store_true", help="print the trace, step by step")
    parser.add_argument("--store", choices=("memory", "sqlite"), default="memory")
    parser.add_argument("--wrong", choices=sorted(WRONG), help="use a store with this bug")
    given = parser.parse_args()
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.seeds)
    clock, bad = SystemClock(), 0
    began = clock.monotonic()
    with opener(given.store, given.wrong) as fresh:
        for seed in seeds:
            result = run(seed, fresh)
            bad += bool(result.violations)
            _report(result, given, write)
    write(f"{len(seeds)} seeds in {clock.monotonic() - began:.1f} s, {bad} violated an invariant")
    return bad


def _report(result: RunResult, given: argparse.Namespace, write: Callable[[str], None]) -> None:
    if given.trace:
        for line in result.trace:
            write(line)
    if given.seed is not None:
        write(f"seed {result.seed}: {len(result.trace)} lines, digest {result.digest}")
    for violation in result.violations:
        write(f"seed {result.seed}: {violation}")
    if result.violations and given.seed is None:
        more = "".join(
            f" --{name} {value!r}"
            for name, value in (("store", given.store), ("wrong", given.wrong))
            if value not in (None, "memory")
        )
        write(f"  replay: python -m tests.simulation --seed {result.seed} --trace{more}")


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
