"""The simulation by hand: ``python -m tests.simulation --seeds 1000 [--from N]``, or ``--seed K --trace`` to see one again.

It prints each seed that broke a promise with the command that replays it, and exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.simulation.world import OpenStore, Ran, run
from tests.simulation.wrong import WRONG

from tidemill.clock import Clock, SystemClock
from tidemill.stores.base import Store
from tidemill.stores.memory import MemoryStore
from tidemill.stores.open import open_store


@contextmanager
def opener(store: str, wrong: str | None) -> Iterator[OpenStore]:
    """Opens a new and empty store for each run."""
    if wrong is not None:
        yield WRONG[wrong][0]
    elif store == "memory":
        yield MemoryStore
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield in_files(folder)


def in_files(folder: str) -> OpenStore:
    """Opens SQLite files in a folder, each a new one."""
    opened: Counter[str] = Counter()

    def fresh(clock: Clock) -> Store:
        opened["files"] += 1
        return open_store(f"sqlite:///{folder}/{opened['files']}.db?synchronous=normal", clock=clock)

    return fresh


def main(say: Callable[[str], None] = print) -> int:
    """Run what the command line asks for; how many seeds broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="N", help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--trace", action="store_true", help="print what happened, step by step")
    parser.add_argument("--store", choices=("memory", "sqlite"), default="memory")
    parser.add_argument("--wrong", choices=sorted(WRONG), help="a store that is wrong on purpose")
    given = parser.parse_args()
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.seeds)
    clock, bad = SystemClock(), 0
    began = clock.monotonic()
    with opener(given.store, given.wrong) as fresh:
        for seed in seeds:
            ran = run(seed, fresh)
            bad += bool(ran.violations)
            _tell(ran, given, say)
    say(f"{len(seeds)} seeds in {clock.monotonic() - began:.1f} s, {bad} broke a promise")
    return bad


def _tell(ran: Ran, given: argparse.Namespace, say: Callable[[str], None]) -> None:
    if given.trace:
        for line in ran.trace:
            say(line)
    if given.seed is not None:
        say(f"seed {ran.seed}: {len(ran.trace)} lines, digest {ran.digest}")
    for violation in ran.violations:
        say(f"seed {ran.seed}: {violation}")
    if ran.violations and given.seed is None:
        more = "".join(
            f" --{name} {value!r}"
            for name, value in (("store", given.store), ("wrong", given.wrong))
            if value not in (None, "memory")
        )
        say(f"  replay: python -m tests.simulation --seed {ran.seed} --trace{more}")


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
