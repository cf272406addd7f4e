"""The chaos run: workers, producers, schedules and an operator on one store, and a nemesis that hurts them all; then peace, and
every invariant is looked at (``invariants`` has the table).

``python3 dev.py faults --minutes 2 --store both --seed 7``. A run that ends red prints its seed and keeps its folder. With
``--wrong`` a guard is taken out of the workers' statements, and the run must end red; ``--faults`` leaves only some of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from tests.faults.disk import in_own_namespace
from tests.faults.invariants import Finding
from tests.faults.invariants_more import INVARIANTS
from tests.faults.keepsake import keep
from tests.faults.kit import Stuck, clock
from tests.faults.mayhem import Chaos, Say
from tests.faults.stage import a_stage
from tests.faults.twist import WRONGS

STORES = ("postgres", "sqlite")

LIVELY = {
    "L0": "no worker ended by itself, or badly",
    "L1": "every job ended, once all was well again",
}


def table(findings: dict[str, Finding]) -> list[str]:
    """The verdict for a screen: a line for each invariant, and a few of what was found."""
    lines = []
    for name, (looked_at, broken) in findings.items():
        words = LIVELY.get(name) or INVARIANTS[name][0]
        verdict = f"BROKEN {len(broken)}" if broken else "ok"
        lines.append(f"  {name:<4} {verdict:<10} {looked_at:>8,}  {words}")
        lines += [f"         {each}" for each in broken[:3]]
    return lines


def one(given: argparse.Namespace, store: str) -> int:
    """One run on one store; the exit code."""
    say: Say = (
        (lambda words: print(words, file=sys.stderr, flush=True))
        if given.json
        else (lambda words: print(words, flush=True))
    )
    mounts = store == "sqlite" and in_own_namespace()
    if store == "sqlite" and not mounts:
        say("no disk can be mounted here, so none will be full")
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    began = clock.monotonic()
    random = Random(given.seed)
    facts: dict[str, Any] = {
        "store": store,
        "seed": given.seed,
        "minutes": given.minutes,
        "wrong": given.wrong or None,
    }
    red = True
    try:
        with a_stage(store, folder, wrong=given.wrong, random=random, mounts=mounts) as stage:
            chaos = Chaos(stage, given.seed, say, given.faults)
            findings = chaos.run(given.minutes * 60)
            red = any(broken for _, broken in findings.values())
            facts |= {"seconds": round(clock.monotonic() - began, 1), "kept": not red} | chaos.facts
            facts["invariants"] = {
                name: {"looked_at": f.looked_at, "broken": len(f.broken)} for name, f in findings.items()
            }
            if red:
                keep(stage, facts | {"broken": {name: f.broken for name, f in findings.items() if f.broken}})
    finally:
        if red:
            say(f"{store}: seed {given.seed}; what is left of it is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    say("\n".join(table(findings)))
    broken = [name for name, finding in findings.items() if finding.broken]
    verdict = f"broken: {', '.join(broken)}" if broken else "every promise kept"
    say(f"chaos on {store}, seed {given.seed}, {facts['seconds']:.0f} s, {facts['jobs']:,} jobs: {verdict}")
    if given.json:
        print(json.dumps(facts, default=str), flush=True)
    return int(red)


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="dev.py faults", description="Hurt a running system, then look whether it kept its promises."
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="how long faults are dealt, on each store")
    parser.add_argument("--store", choices=(*STORES, "both"), default="both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object for each store, and the rest on stderr"
    )
    parser.add_argument(
        "--wrong", choices=tuple(WRONGS), default="", help="take a guard out: the run must end red"
    )
    parser.add_argument(
        "--faults", type=lambda text: text.split(","), default=[], metavar="A,B", help="only these kinds"
    )
    given = parser.parse_args()
    if given.store == "both":
        # Each in a process of its own: one of them may go where disks can be mounted.
        own = [word for word in sys.argv[1:] if word not in ("--store", "both", "--store=both")]
        words = [sys.executable, "-m", "tests.faults.chaos", *own]
        return max(subprocess.call([*words, "--store", store]) for store in STORES)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        return one(given, given.store)
    except Stuck:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main())
