"""How a fault run is started by hand: ``python -m tests.faults.<name> --store sqlite --cycles 100 --seed 7``.

It prints one line for people and one of JSON, and exits with 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from tests.faults.checks import Verdict
from tests.faults.kit import Ground, clock, own_ground

Run = Callable[[Ground, int, int], Verdict]
"""A fault run: on this ground, so many cycles, with this seed."""


def main(
    name: str,
    run: Run,
    *,
    cycles: int,
    stores: Sequence[str] = ("sqlite", "postgres"),
    settings: dict[str, str] | None = None,
) -> None:
    """The command of a run; ``cycles`` is its full length, ``settings`` are those of a private PostgreSQL."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.faults.{name}")
    parser.add_argument("--store", choices=stores, default=stores[0])
    parser.add_argument("--cycles", type=int, default=cycles)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep-logs", metavar="FILE", help="write the workers' logs there")
    given = parser.parse_args()
    began = clock.monotonic()
    with own_ground(given.store, **(settings or {})) as ground:
        try:
            verdict = run(ground, given.cycles, given.seed)
        finally:
            if given.keep_logs:
                with open(given.keep_logs, "w") as file:  # noqa: PTH123
                    file.writelines(f"--- {worker.pid}\n{worker.log}" for worker in ground.workers)
    seconds = clock.monotonic() - began
    kept = not verdict.violations
    words = "every promise kept" if kept else f"{len(verdict.violations)} violations"
    ends = verdict.facts.get("ends", {})
    assert isinstance(ends, dict)
    became = "".join(f", {count} {state}" for state, count in ends.items())
    print(
        f"{name} on {given.store}, {given.cycles} cycles, seed {given.seed}, {seconds:.0f} s: {words}{became}"
    )
    for violation in verdict.violations[:20]:
        print(f"  {violation}")
    facts = {"run": name, "store": given.store, "cycles": given.cycles, "seed": given.seed}
    print(json.dumps(facts | {"seconds": round(seconds, 1), "kept": kept} | verdict.facts, default=str))
    sys.exit(0 if kept else 1)
