"""The workloads, each measured once on one side.

Enqueueing (W1, W2), drains (W3, W4), latency (W5), idling (W6) and scale (W8); memory and start-up (W7) are read from the drain.
Every function returns figures by name and leaves no process running.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.engine_proc import Others
from bench.engine_sides import Failed, Side
from bench.engine_slots import Seen
from bench.engine_storage import Server
from bench.engine_workers import Workers

Figures = dict[str, float]

_POLL = 0.004


@dataclass(frozen=True)
class Rig:
    """Shared state of a run: the scratch folder, the server, the sizes and the times."""

    scratch: Path
    server: Server | None
    jobs: int
    processes: int
    concurrency: int
    pending: int
    finished: int
    seconds: float  #: of a latency run
    settling: float
    window: float  #: of an idle run
    cap: float = 60.0  #: seconds after which a drain is cut off
    work_seconds: float = 3.0  #: of a run of W9 to W11 without any overhead

    def others(self) -> Others:
        return Others(None if self.server is None else self.server.pid)

    def jobs_of(self, side: Side) -> int:
        return min(self.jobs, side.jobs or self.jobs)


def enqueueing(rig: Rig, side: Side, words: Sequence[object]) -> Figures:
    """W1 and W2: jobs per second as seen by the enqueuer, after pending writes of the previous run were flushed."""
    side.fresh()
    side.storage.settle()
    others = rig.others()
    return {"rate": side.rate(*words), "others": others.cores()}


def warm(rig: Rig, side: Side) -> Figures:
    """Run all programs of a side once before the measurements, so that Python has compiled them."""
    side.fresh()
    side.fill(1)
    with Workers(side, rig.scratch, processes=1, concurrency=None) as workers:
        seen = _wait_for_first(workers, 120.0)
        return {"first_job_s": (seen.first - workers.spawned_at) / 1e9}


def drain(rig: Rig, side: Side, *, processes: int, concurrency: int | None) -> Figures:
    """W3 and W4: from the start of the first job until the store has no unfinished job."""
    jobs = rig.jobs_of(side)
    side.fresh()
    side.fill(jobs)
    side.storage.settle()
    figures = _timed(rig, side, jobs, processes=processes, concurrency=concurrency, to_the_end=True)
    if side.done is not None and figures["jobs"] == jobs and (ended := side.storage.left(side.done)) != jobs:
        raise Failed(f"{side.name}: {ended} of {jobs} jobs succeeded")
    return figures


def scale(rig: Rig, side: Side, beside: str) -> Figures:
    """W8: as W3, up to the start of the last counted job, with no, finished or pending jobs in addition."""
    jobs, storage = rig.jobs_of(side), side.storage
    word = f"with_{beside}"
    if not storage.bring(word):
        side.fresh()
        if beside == "finished":
            assert side.history is not None
            side.history(rig.finished)
        elif beside == "pending":
            side.fill(rig.pending)
        storage.settle()
        storage.keep(word)
    side.fill(jobs)
    storage.settle()
    return _timed(rig, side, jobs, processes=1, concurrency=rig.concurrency, to_the_end=False)


def _timed(
    rig: Rig, side: Side, jobs: int, *, processes: int, concurrency: int | None, to_the_end: bool
) -> Figures:
    storage = side.storage
    written, done = storage.log_bytes(), storage.transactions()
    others = rig.others()
    with Workers(side, rig.scratch, processes=processes, concurrency=concurrency) as workers:
        before = _wait_for_first(workers, 30.0)
        cpu_before = workers.cpu_each()
        seen, ended_at = _wait_for_all(rig, side, workers, before, jobs, to_the_end=to_the_end)
        spent, spent_beside = workers.cpu(), workers.cpu_beside(cpu_before)
        # An unfinished worker continues between the last counted job and the last observed one.
        count = min(seen.begun, jobs) if to_the_end else seen.begun
        figures = {
            "rate": count / ((ended_at - seen.first) / 1e9),
            "jobs": count,
            "first_job_s": (seen.first - workers.spawned_at) / 1e9,
            "stagger_s": seen.stagger / 1e9,
            "again": max(0, seen.begun - count),
            # The jobs started before the first observation are not part of the time.
            "cpu_us": spent * 1e6 / max(1, seen.begun - before.begun),
            "cpu_us_all": (spent + spent_beside) * 1e6 / max(1, seen.begun - before.begun),
            "rss_mb": workers.resident(whole=True),
            "rss_runner_mb": workers.resident(whole=False),
            "others": others.cores(),
        }
        if written is not None:
            figures["wal_bytes"] = ((storage.log_bytes() or 0.0) - written) / max(1, seen.begun)
        stopping = time.monotonic()
    figures["stop_s"] = time.monotonic() - stopping
    if done is not None:
        figures["transactions"] = ((storage.transactions() or 0.0) - done) / max(1, seen.begun)
    return figures


def _wait_for_first(workers: Workers, seconds: float) -> Seen:
    until = time.monotonic() + seconds
    while not (seen := workers.seen()).begun:
        workers.check()
        if time.monotonic() > until:
            raise Failed(f"{workers.name}: no job started within {seconds:g} s; {workers.last_words()}")
        time.sleep(_POLL / 4)
    return seen


def _wait_for_all(
    rig: Rig, side: Side, workers: Workers, before: Seen, jobs: int, *, to_the_end: bool
) -> tuple[Seen, int]:
    """Return the final observation and its time. A drain that takes too long ends at its last start."""
    moved_at, last = time.monotonic(), before
    while True:
        # The slot of a peer that was stopped during a write is empty for a while: then the last observation counts.
        seen, now = max(workers.seen(), last, key=lambda seen: seen.begun), time.monotonic()
        if seen.begun != last.begun:
            moved_at, last = now, seen
        if seen.begun >= jobs and not to_the_end:
            return seen, seen.last
        # Threads may overwrite each other's count, so the store decides when the count barely changes.
        if seen.begun >= jobs or (seen.begun >= 0.99 * jobs and now - moved_at > 0.15):
            if side.storage.left(side.left) == 0:
                return seen, time.monotonic_ns()
        elif now - seen.first / 1e9 > rig.cap:
            return seen, seen.last
        if now - moved_at > rig.cap:
            raise Failed(
                f"{side.name}: {side.storage.left(side.left)} jobs are left without progress; {workers.last_words()}"
            )
        workers.check()
        time.sleep(_POLL)


def latency(rig: Rig, side: Side, *, rate: float | None = None, threads: int | None = None) -> Figures:
    """W5: a job every 50 ms to an idle, warm worker; milliseconds from the return of the enqueue call to the job's start.

    W14 gives a rate of jobs per second, which come at random times, and the threads of the worker.
    """
    side.fresh()
    side.fill(1)
    starts, sent = rig.scratch / "starts", rig.scratch / "sent"
    for file in (starts, sent):
        file.unlink(missing_ok=True)
    with Workers(
        side, rig.scratch, processes=rig.processes, concurrency=None, threads=threads, starts=starts
    ) as workers:
        _wait_for_first(workers, 30.0)
        time.sleep(1.0)
        starts.write_bytes(b"")
        others = rig.others()
        side.call("w5", rig.seconds, sent, *([] if rate is None else [rate]))
        calls = [tuple(map(int, line.split())) for line in sent.read_text().splitlines()]
        begun = _starts(starts, {number for number, _, _ in calls}, workers)
        cores = others.cores()
    waits = sorted((begun[number] - returned) / 1e6 for number, _, returned in calls if number in begun)
    whole = sorted((begun[number] - called) / 1e6 for number, called, _ in calls if number in begun)
    if not waits:
        raise Failed(f"{side.name}: none of {len(calls)} jobs started")
    return {
        "jobs": len(waits),
        "missing": len(calls) - len(waits),
        **{f"p{part}": percentile(waits, part) for part in (50, 95, 99)},
        "max": waits[-1],
        "call_p50": percentile(whole, 50),
        "call_p99": percentile(whole, 99),
        "calls_s": len(calls) / max(1e-9, (calls[-1][2] - calls[0][1]) / 1e9),
        "others": cores,
    }


def _starts(file: Path, wanted: set[int], workers: Workers) -> dict[int, int]:
    """Return the start of each job, after all have started or two more seconds have passed."""
    until = time.monotonic() + 2.0
    while True:
        lines = file.read_text().splitlines()
        begun: dict[int, int] = {}
        for number, at in (map(int, line.split()) for line in lines):
            begun.setdefault(number, at)
        if wanted <= set(begun) or time.monotonic() > until:
            return begun
        workers.check()
        time.sleep(0.02)


def percentile(ordered: Sequence[float], part: int) -> float:
    """Return the value below which ``part`` per cent of the sorted values lie."""
    return ordered[min(len(ordered) - 1, len(ordered) * part // 100)]


def idling(rig: Rig, sides: Sequence[Side]) -> dict[str, Figures]:
    """W6: all workers at once without jobs; processor time and transactions over one window."""
    for side in sides:
        side.fresh()
        side.fill(1)
    crews = {
        side.name: Workers(side, rig.scratch, processes=rig.processes, concurrency=None) for side in sides
    }
    entered: list[Workers] = []
    try:
        for workers in crews.values():
            entered.append(workers.__enter__())
            _wait_for_first(workers, 30.0)
        time.sleep(rig.settling)
        before = {side.name: (crews[side.name].cpu_of_all(), side.storage.transactions()) for side in sides}
        others, begun_at = rig.others(), time.monotonic()
        time.sleep(rig.window)
        results = {}
        for side in sides:
            workers, (spent, done) = crews[side.name], before[side.name]
            seconds = time.monotonic() - begun_at
            workers.check()
            figures = {
                "cpu_percent": 100.0 * (workers.cpu_of_all() - spent) / seconds,
                "rss_mb": workers.resident(whole=True),
                "others": others.cores(),
            }
            if done is not None:
                figures["transactions_s"] = ((side.storage.transactions() or 0.0) - done) / seconds
                figures["connections"] = side.storage.connections() or 0.0
            results[side.name] = figures
        return results
    finally:
        for workers in entered:
            workers.stop()
