"""Workloads of jobs that do some work, each measured once on one side.

W9 loops in as many processes as cores, W10 blocks threads, and W11 waits in coroutines. The share is the rate divided by that of the
same work without a job system: a bare loop in as many processes (W9), or every slot busy all the time (W10 and W11). W13 is the
drain of jobs that log and report progress, W14 the latency of a worker whose threads are busy most of the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench import engine_loads as loads
from bench.engine_loads import Figures, Rig
from bench.engine_sides import ROOT, Failed, Side
from bench.engine_slots import Seen
from bench.engine_workers import Workers
from bench.peers.work import Kind, Work

_POLL = 0.01
_START = 30.0
CORES = os.cpu_count() or 1


@dataclass(frozen=True)
class Load:
    """A variant of a workload: the work of a job, and how many jobs run at a time."""

    what: str
    variant: str
    kind: Kind
    seconds: float  #: of one job
    slots: int  #: jobs at a time in each process
    processes: int = 1

    @property
    def ideal(self) -> float:
        """Return the jobs per second if every slot is busy all the time."""
        return self.processes * self.slots / self.seconds

    def jobs(self, seconds: float, most: int | None) -> int:
        """Return the number of jobs for a run of this length, at least one for each slot."""
        count = max(self.processes * self.slots, round(self.ideal * seconds))
        return count if most is None else min(count, most)


LOADS = (
    Load("w9", "1 ms", "spin", 0.001, 1, CORES),
    Load("w9", "8 ms", "spin", 0.008, 1, CORES),
    Load("w9", "50 ms", "spin", 0.05, 1, CORES),
    Load("w10", "10 threads", "block", 0.005, 10),
    Load("w10", "50 threads", "block", 0.005, 50),
    Load("w11", "1,000 coroutines", "await", 1.0, 1_000),
    Load("w11", "5,000 coroutines", "await", 1.0, 5_000),
)


LINES = 10
"""The lines that a job of W13 logs."""
REPORTING_JOBS = 5_000
_STORED_LINES = {
    "postgres": "select count(*) from tidemill.logs",
    "sqlite": "select count(*) from tidemill_logs",
}
BUSY = 0.7
"""How much of their time the threads of W14 are busy."""
BUSY_LOAD = Load("w14", "", "block", 0.1, 10)


def loads_of(what: str, side: Side) -> list[Load]:
    """Return the variants of a workload whose work the jobs of this side can do."""
    return [load for load in LOADS if load.what == what and load.kind in side.works]


def working(rig: Rig, side: Side, load: Load) -> Figures:
    """W9 to W11: from the first start in the last process to the last end, with the jobs in the store at the start."""
    loops = calibrated(load.seconds) if load.kind == "spin" else 0
    equipped = _equipped(side, Work(load.kind, loops or load.seconds), load.slots)
    # W11 needs a job for every slot, even from a system that drains few jobs in the other workloads.
    jobs = load.jobs(rig.work_seconds, side.jobs if load.kind != "await" else None)
    equipped.fresh()
    equipped.fill(jobs)
    equipped.storage.settle()
    ideal = bare_rate(loops, jobs, load.processes) if loops else load.ideal
    others = rig.others()
    concurrency, threads = (load.slots, None) if load.kind == "await" else (None, load.slots)
    with Workers(
        equipped, rig.scratch, processes=load.processes, concurrency=concurrency, threads=threads
    ) as workers:
        first = _all_begun(workers, load.processes, jobs)
        seen = _all_ended(rig, workers, jobs)
        # The jobs of one process before another one started are not part of the time.
        began_at, before = (
            (first.first + first.stagger, first.ended) if len(first.pids) > 1 else (first.first, 0)
        )
        rate = (min(seen.ended, jobs) - before) / max(1e-9, (seen.last_end - began_at) / 1e9)
        figures = {
            "share": rate / ideal,
            "rate": rate,
            "ideal_rate": ideal,
            "jobs": min(seen.ended, jobs),
            "again": max(0, seen.begun - jobs),
            "rss_mb": workers.resident(whole=True),
            "others": others.cores(),
        }
        if seen.ended >= jobs:
            _check_stored(equipped, workers, jobs)
    return figures


def reporting(rig: Rig, side: Side) -> Figures:
    """W13: as W3, with jobs that log ten lines and report progress; the share of the rate of the same jobs without."""
    rig = replace(rig, jobs=min(rig.jobs, REPORTING_JOBS))
    plain, full = (
        loads.drain(rig, _equipped(side, Work("report", lines), 1), processes=1, concurrency=rig.concurrency)
        for lines in (0, LINES)
    )
    stored, wanted = side.storage.left(_STORED_LINES[side.storage.kind]), round(full["jobs"]) * LINES
    if stored != wanted:
        raise Failed(f"{side.name}: {stored} of {wanted} lines are in the store")
    return {
        "share": full["rate"] / plain["rate"],
        "rate": full["rate"],
        "plain_rate": plain["rate"],
        "lines_s": full["rate"] * LINES,
        **{
            name: full[name]
            for name in ("jobs", "again", "cpu_us_all", "wal_bytes", "rss_mb", "others")
            if name in full
        },
    }


def busy_latency(rig: Rig, side: Side) -> Figures:
    """W14: as W5, with jobs at random times that keep ten threads busy for 70 % of their time."""
    load = BUSY_LOAD
    equipped = _equipped(side, Work(load.kind, load.seconds), load.slots)
    figures = loads.latency(rig, equipped, rate=BUSY * load.ideal, threads=load.slots)
    # An enqueuer that cannot keep up leaves the worker less busy.
    return {**figures, "busy": figures.pop("calls_s") / load.ideal}


def _equipped(side: Side, work: Work, slots: int) -> Side:
    """Return the side with programs whose jobs do this work, so many at a time."""
    words = {**side.words, "BENCH_WORK": str(work)}
    return replace(side, words=words if side.ours else {**words, "BENCH_CONCURRENCY": str(slots)})


def _run_bare(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.peers.work", *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _answers(programs: Sequence[subprocess.Popen[str]]) -> list[dict[str, float]]:
    answers = []
    for program in programs:
        output, _ = program.communicate()
        if program.returncode:
            raise Failed(f"the bare loop ended with code {program.returncode}")
        answers.append(json.loads(output))
    return answers


def calibrated(seconds: float) -> int:
    """Return the loops of this duration, in a program of their own as the jobs are."""
    (answer,) = _answers([_run_bare("calibrate", seconds)])
    return int(answer["loops"])


def bare_rate(loops: int, jobs: int, processes: int) -> float:
    """Return the jobs per second of bare loops in so many processes at once."""
    programs = [_run_bare("bare", loops, max(1, jobs // processes)) for _ in range(processes)]
    return sum(answer["n"] / answer["secs"] for answer in _answers(programs))


def _all_begun(workers: Workers, processes: int, jobs: int) -> Seen:
    """Return the observation in which every process has started a job, or the first one if half of the jobs are done by then."""
    until, first = time.monotonic() + _START, None
    while True:
        seen = workers.seen()
        if seen.begun and first is None:
            first = seen
        if len(seen.pids) >= processes:
            return seen
        if first is not None and seen.ended >= jobs // 2:
            return first
        workers.check()
        if time.monotonic() > until:
            if first is None:
                raise Failed(f"{workers.name}: no job started within {_START:g} s; {workers.last_words()}")
            return first
        time.sleep(_POLL / 4)


def _all_ended(rig: Rig, workers: Workers, jobs: int) -> Seen:
    """Return the observation after all jobs ended, or the last one of a run that takes too long."""
    until = time.monotonic() + rig.cap
    while True:
        seen = workers.seen()
        if seen.ended >= jobs or time.monotonic() > until:
            if not seen.ended:
                raise Failed(f"{workers.name}: no job ended within {rig.cap:g} s; {workers.last_words()}")
            return seen
        workers.check()
        time.sleep(_POLL)


def _check_stored(side: Side, workers: Workers, jobs: int) -> None:
    """Raise ``Failed`` unless the store has no unfinished job, and ours also all results."""
    until = time.monotonic() + _START
    while left := side.storage.left(side.left):
        workers.check()
        if time.monotonic() > until:
            raise Failed(f"{side.name}: {left} of {jobs} jobs ended but are not finished in the store")
        time.sleep(_POLL)
    if side.done is not None and (ended := side.storage.left(side.done)) != jobs:
        raise Failed(f"{side.name}: {ended} of {jobs} jobs succeeded")
