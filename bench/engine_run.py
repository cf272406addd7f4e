"""A run of the comparison: every workload on every side, round by round.

It starts no server and prints no table. A failure is recorded, and the run continues.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg
from bench import engine_loads as loads
from bench import engine_table as show
from bench import engine_work as work
from bench import yardstick
from bench.engine_loads import Figures, Rig
from bench.engine_sides import Failed, Side
from bench.engine_storage import Database

Entry = tuple[str, Callable[[], Figures]]
Found = dict[str, list[Figures | None]]

WORKLOADS = ("w1", "w2", "w3", "w4", "w5", "w6", "w8", "w9", "w10", "w11", "w13", "w14")
_TROUBLE = (RuntimeError, OSError, subprocess.SubprocessError, psycopg.Error, AssertionError)


@dataclass(frozen=True)
class Plan:
    """The workloads to run, the number of rounds, and the duration of W1."""

    only: Sequence[str]
    rounds: int
    seconds: float
    limit: Path | None = None  #: another program to be PostgreSQL's yardstick of the drains


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass
class Run:
    """The measurements of all sides and workloads."""

    plan: Plan
    rig: Rig
    sides: Sequence[Side]
    failures: list[str] = field(default_factory=list)
    results: dict[str, Found] = field(default_factory=dict)

    def run(self) -> None:
        try:
            for side in self.sides:
                if side.ours:
                    self._tried(f"warming {side.name}", partial(loads.warm, self.rig, side))
            for what in self.plan.only:
                if what == "w6":
                    self.results[what] = self._idle()
                else:
                    self.results[what] = self._rounds(what, list(self._entries(what)))
        finally:
            for side in self.sides:
                side.storage.drop()
        if "w3" in self.results:
            self.results["w7"] = {
                name: rounds
                for name, rounds in self.results["w3"].items()
                if show.values({name: rounds}, name, "rss_mb")
            }

    def _rounds(self, what: str, entries: Sequence[Entry]) -> Found:
        results: Found = {name: [] for name, _ in entries}
        for number in range(self.plan.rounds):
            for name, act in entries if number % 2 == 0 else reversed(entries):
                results[name].append(self._tried(f"{what} {number + 1}/{self.plan.rounds} {name}", act))
        return results

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
        results: Found = {side.name: [] for side in self.sides}
        for number in range(self.plan.rounds):
            try:
                for name, figures in loads.idling(self.rig, self.sides).items():
                    results[name].append(figures)
                    say(
                        f"  w6 {number + 1} {name}: " + ", ".join(f"{k} {v:,.4g}" for k, v in figures.items())
                    )
            except _TROUBLE as error:
                self.failures.append(f"w6: {error}")
                say(f"  w6: FAILED: {error}")
        return results

    # The entries of a round -------------------------------------------------------------------------------------------

    def _entries(self, what: str) -> Iterator[Entry]:
        before = ""
        for side in self.sides:
            if side.storage.kind != before:
                before = side.storage.kind
                yield from self._sticks(what, before)
            yield from self._entries_of(what, side)

    def _entries_of(self, what: str, side: Side) -> Iterator[Entry]:
        rig = self.rig
        match what:
            case "w1":
                yield side.name, partial(loads.enqueueing, rig, side, ("w1", self.plan.seconds))
            case "w2" if side.bulk:
                yield side.name, partial(loads.enqueueing, rig, side, ("w2", rig.jobs_of(side)))
            case "w3" | "w4":
                yield from self._drains(side, 1 if what == "w3" else 2)
            case "w5":
                yield side.name, partial(loads.latency, rig, side)
            case "w8" if side.on_postgres:
                yield from self._scales(side)
            case "w9" | "w10" | "w11":
                for load in work.loads_of(what, side):
                    yield f"{side.name}, {load.variant}", partial(work.working, rig, side, load)
            case "w13" if "report" in side.works:
                yield side.name, partial(work.reporting, rig, side)
            case "w14" if work.BUSY_LOAD.kind in side.works:
                yield side.name, partial(work.busy_latency, rig, side)

    def _drains(self, side: Side, workers: int) -> Iterator[Entry]:
        rig = self.rig
        processes = workers * (rig.processes if side.ours and workers == 1 else 1)
        yield side.name, partial(loads.drain, rig, side, processes=processes, concurrency=rig.concurrency)
        if side.name == show.OURS and workers == 1:
            yield show.OURS_NARROW, partial(loads.drain, rig, side, processes=rig.processes, concurrency=10)

    def _scales(self, side: Side) -> Iterator[Entry]:
        for beside in ("empty", "finished", "pending"):
            if (beside != "finished" or side.history is not None) and (beside != "pending" or side.bulk):
                yield f"{side.name}, {beside}", partial(loads.scale, self.rig, side, beside)

    def _sticks(self, what: str, store: str) -> Iterator[Entry]:
        enqueueing = {"w1": (self.plan.seconds, 0), "w2": (0.0, self.rig.jobs)}
        if store == "postgres":
            if what in enqueueing:
                yield show.STICK, partial(bare_postgres, self.rig, partial(_bare_enqueue, *enqueueing[what]))
            elif what in ("w3", "w4"):
                processes = 1 if what == "w3" else 2
                drain = partial(_bare_drain, self.rig.jobs, self.plan.limit, processes)
                yield show.STICK, partial(bare_postgres, self.rig, drain)
        elif store == "sqlite":
            if what in enqueueing:
                act = partial(_bare_enqueue_sqlite, *enqueueing[what])
                yield show.STICK_SQLITE, partial(bare_sqlite, self.rig, act)
            elif what == "w3":
                act = partial(yardstick.sqlite, jobs=self.rig.jobs)
                yield show.STICK_SQLITE, partial(bare_sqlite, self.rig, act)


def bare_postgres(rig: Rig, act: Callable[[str], float]) -> Figures:
    """Run a yardstick in a separate database."""
    assert rig.server is not None
    database = Database(rig.server, "bench_engine_yardstick")
    database.fresh()
    others = rig.others()
    try:
        return {"rate": act(database.url), "others": others.cores()}
    finally:
        database.drop()


def _bare_enqueue(seconds: float, jobs: int, url: str) -> float:
    return yardstick.enqueue_postgres(url, seconds=seconds, jobs=jobs)


def _bare_enqueue_sqlite(seconds: float, jobs: int, folder: Path) -> float:
    return yardstick.enqueue_sqlite(folder, seconds=seconds, jobs=jobs)


def _bare_drain(jobs: int, limit: Path | None, processes: int, url: str) -> float:
    """Run the bare statement by the given program, or by ours."""
    if limit is None:
        return yardstick.postgres(url, jobs, processes=processes)
    words = [url, "--procs", str(processes), "--jobs", str(jobs)]
    command = [sys.executable, str(limit), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise Failed(f"the yardstick: {done.stderr.strip()[-800:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["jobs_per_s"])


def bare_sqlite(rig: Rig, act: Callable[[Path], float]) -> Figures:
    """Run a yardstick in a separate folder."""
    others = rig.others()
    with tempfile.TemporaryDirectory(dir=rig.scratch) as folder:
        return {"rate": act(Path(folder)), "others": others.cores()}


def postgres_peers(sides: Sequence[Side]) -> list[str]:
    return [side.name for side in sides if side.on_postgres and not side.ours]


def document(run: Run) -> dict[str, object]:
    """Return all results, for programs."""
    rig, server = run.rig, run.rig.server
    return {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "postgres": None if server is None else server.version,
            "load": os.getloadavg(),
        },
        "sizes": {name: value for name, value in vars(rig).items() if isinstance(value, (int, float))},
        "rounds": run.plan.rounds,
        "workloads": run.results,
        "checks": [check.facts() for check in show.checks(run.results, postgres_peers(run.sides))],
        "failures": run.failures,
    }
