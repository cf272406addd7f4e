"""The chaos run: a load, a nemesis that injects faults, and the invariant checks.

``python3 dev.py faults --minutes 2 --store both --seed 7``. A failed run prints its seed and keeps its folder. ``--wrong``
removes one guard from the workers' SQL; the run must then fail. ``--faults`` selects faults by name.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from random import Random
from typing import Any, NoReturn

from tests.faults.artifacts import keep
from tests.faults.chaos_run import PATIENCE, Chaos, Say
from tests.faults.cluster import Cluster, open_cluster
from tests.faults.disk import in_own_namespace
from tests.faults.flow_invariants import FLOW_INVARIANTS
from tests.faults.invariants import Finding
from tests.faults.invariants_more import INVARIANTS
from tests.faults.kit import Stuck, clock
from tests.faults.mutations import CODE_MUTATIONS, MUTATIONS
from tests.faults.phase_list import PHASES, phases_for
from tests.faults.phases import PROMISES, run_phase
from tests.faults.protections import SWITCHES
from tests.faults.stepping import find_faketime
from tests.servers.processes import ServiceMissing

STORES = ("postgres", "sqlite")

LIVELY = {
    "L0": "no worker exited on its own or with an error",
    "L1": "every job ended after the faults stopped",
}


def table(findings: dict[str, Finding]) -> list[str]:
    """Format the verdict: one line per invariant, with its first violations."""
    lines = []
    for name, (checked, broken) in findings.items():
        words = LIVELY.get(name) or PROMISES.get(name) or (INVARIANTS | FLOW_INVARIANTS)[name][0]
        verdict = f"BROKEN {len(broken)}" if broken else "ok"
        lines.append(f"  {name:<4} {verdict:<10} {checked:>8,}  {words}")
        lines += [f"         {violation}" for violation in broken[:3]]
    return lines


def one(given: argparse.Namespace, store: str) -> int:
    """Run once on one store; return the exit code."""
    say: Say = (
        (lambda words: print(words, file=sys.stderr, flush=True))
        if given.json
        else (lambda words: print(words, flush=True))
    )
    mounts = store == "sqlite" and in_own_namespace()
    if store == "sqlite" and not mounts:
        say("cannot mount a file system here; the fault 'disk full' is left out")
    faketime = store != "postgres" or _has_faketime(say)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    began = clock.monotonic()
    random = Random(given.seed)
    facts: dict[str, Any] = {
        "store": store,
        "seed": given.seed,
        "minutes": given.minutes,
        "wrong": given.wrong or None,
        "without": given.without or None,
    }
    red = True
    try:
        with open_cluster(
            store,
            folder,
            wrong=given.wrong,
            random=random,
            mounts=mounts,
            without=given.without,
            faketime=faketime,
        ) as cluster:
            findings = _findings(cluster, given, say, facts)
            red = any(broken for _, broken in findings.values())
            facts |= {"seconds": round(clock.monotonic() - began, 1), "kept": not red}
            facts["invariants"] = {
                name: {"checked": f.checked, "broken": len(f.broken)} for name, f in findings.items()
            }
            if red:
                keep(
                    cluster, facts | {"broken": {name: f.broken for name, f in findings.items() if f.broken}}
                )
    finally:
        if red:
            say(f"{store}: seed {given.seed}; artifacts are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    say("\n".join(table(findings)))
    broken = [name for name, finding in findings.items() if finding.broken]
    verdict = f"broken: {', '.join(broken)}" if broken else "every promise kept"
    say("faults: " + ", ".join(f"{count} {name}" for name, count in facts["faults"].items()))
    say(f"chaos on {store}, seed {given.seed}, {facts['seconds']:.0f} s, {facts['jobs']:,} jobs: {verdict}")
    if given.json:
        print(json.dumps(facts, default=str), flush=True)
    return int(red)


def _findings(
    cluster: Cluster, given: argparse.Namespace, say: Say, facts: dict[str, Any]
) -> dict[str, Finding]:
    """Run the main part, then each fault that needs a separate store."""
    findings: dict[str, Finding] = {}
    facts |= {"jobs": 0, "accepted": 0, "faults": {}}
    chosen = [phase for phase in phases_for(cluster.store) if not given.faults or phase.name in given.faults]
    if not given.faults or set(given.faults) - {phase.name for phase in PHASES}:
        chaos = Chaos(cluster, given.seed, say, given.faults, given.patience)
        findings |= chaos.run(given.minutes * 60)
        facts |= chaos.facts
    for phase in chosen:
        say(f"{cluster.store}: {phase.name}")
        made = run_phase(phase, cluster, Random(given.seed))
        findings |= made.findings
        facts["faults"][phase.name] = made.count
        facts[phase.name.replace(" ", "_")] = made.facts
    return findings


def _has_faketime(say: Say) -> bool:
    try:
        find_faketime()
    except ServiceMissing as missing:
        if os.environ.get("TIDEMILL_TEST_ALL") == "1":
            raise
        say(f"SKIPPED: the fault 'clock step' is left out: {missing}")
        return False
    return True


def _kinds(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="dev.py faults", description="Inject faults into a running system, then check every invariant."
    )
    parser.add_argument("--minutes", type=float, default=2.0, help="minutes of faults on each store")
    parser.add_argument("--store", choices=(*STORES, "both"), default="both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per store; everything else goes to stderr"
    )
    parser.add_argument(
        "--wrong",
        choices=(*MUTATIONS, *CODE_MUTATIONS),
        default="",
        help="remove this guard; the run must fail",
    )
    parser.add_argument(
        "--without", choices=tuple(SWITCHES), default="", help="switch this protection off; the run must fail"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE,
        metavar="SECONDS",
        help="time in which every job must end after the last fault",
    )
    parser.add_argument("--faults", type=_kinds, default=[], metavar="A,B", help="inject only these faults")
    given = parser.parse_args()
    if given.store == "both":
        # Each store runs in its own process: the SQLite run may re-execute itself in a mount namespace.
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
