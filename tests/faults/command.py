"""The command line of a fault run.

``python -m tests.faults.<name> --store sqlite --cycles 100 --seed 7`` prints one line of text and one of JSON, and exits with 1
if an invariant was violated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from tests.faults.checks import Verdict
from tests.faults.kit import Harness, clock, own_harness

Run = Callable[[Harness, int, int], Verdict]
"""A fault run: harness, cycles, seed."""


def main(
    name: str,
    run: Run,
    *,
    cycles: int,
    stores: Sequence[str] = ("sqlite", "postgres"),
    settings: dict[str, str] | None = None,
    harness: Callable[[], AbstractContextManager[Harness]] | None = None,
) -> None:
    """Run a fault run from the command line.

    ``cycles`` is its full length, ``settings`` configure the private PostgreSQL. A run that needs more than one server passes a
    ``harness`` factory.
    """
    parser = argparse.ArgumentParser(prog=f"python -m tests.faults.{name}")
    parser.add_argument("--store", choices=stores, default=stores[0])
    parser.add_argument("--cycles", type=int, default=cycles)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep-logs", metavar="FILE", help="write the workers' logs to this file")
    given = parser.parse_args()
    began = clock.monotonic()
    with harness() if harness is not None else own_harness(given.store, **(settings or {})) as opened:
        try:
            verdict = run(opened, given.cycles, given.seed)
        finally:
            if given.keep_logs:
                with open(given.keep_logs, "w") as file:  # noqa: PTH123
                    file.writelines(f"--- {worker.pid}\n{worker.log}" for worker in opened.workers)
    seconds = clock.monotonic() - began
    kept = not verdict.violations
    words = "every promise kept" if kept else f"{len(verdict.violations)} violations"
    ends = verdict.facts.get("ends", {})
    assert isinstance(ends, dict)
    states = "".join(f", {count} {state}" for state, count in ends.items())
    print(
        f"{name} on {given.store}, {given.cycles} cycles, seed {given.seed}, {seconds:.0f} s: {words}{states}"
    )
    for violation in verdict.violations[:20]:
        print(f"  {violation}")
    facts = {"run": name, "store": given.store, "cycles": given.cycles, "seed": given.seed}
    print(json.dumps(facts | {"seconds": round(seconds, 1), "kept": kept} | verdict.facts, default=str))
    sys.exit(0 if kept else 1)
