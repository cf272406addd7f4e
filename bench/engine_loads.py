"""The workloads, each measured once on one side: enqueueing (W1, W2), drains (W3, W4), latency (W5), idling (W6), scale (W8).

Memory and start-up (W7) are read from the drain. Every function returns figures by name and leaves no process behind.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.engine_ground import Server
from bench.engine_proc import Others
from bench.engine_sides import Failed, Side
from bench.engine_slots import Seen
from bench.engine_workers import Workers

Figures = dict[str, float]

_POLL = 0.004


@dataclass(frozen=True)
class Rig:
    """What a run shares: the scratch folder, the server, the sizes and the times."""

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

    def others(self) -> Others:
        return Others(None if self.server is None else self.server.pid)

    def jobs_of(self, side: Side) -> int:
        return min(self.jobs, side.jobs or self.jobs)


def enqueueing(rig: Rig, side: Side, words: Sequence[object]) -> Figures:
    """W1 and W2: jobs a second as the enqueuer sees them. What the one before has left to be written is written first."""
    side.fresh()
    side.ground.settle()
    others = rig.others()
    return {"rate": side.rate(*words), "others": others.cores()}


def warm(rig: Rig, side: Side) -> Figures:
    """Run all of a side's programs once before anything is measured, so that Python has compiled them."""
    side.fresh()
    side.fill(1)
    with Workers(side, rig.scratch, processes=1, concurrency=None) as workers:
        seen = _wait_for_first(workers, 120.0)
        return {"first_job_s": (seen.first - workers.spawned_at) / 1e9}


def drain(rig: Rig, side: Side, *, processes: int, concurrency: int | None) -> Figures:
    """W3 and W4: from the first job's start to the moment when the store shows no unfinished job."""
    jobs = rig.jobs_of(side)
    side.fresh()
    side.fill(jobs)
    side.ground.settle()
    figures = _timed(rig, side, jobs, processes=processes, concurrency=concurrency, to_the_end=True)
    if side.done is not None and figures["jobs"] == jobs and (ended := side.ground.left(side.done)) != jobs:
        raise Failed(f"{side.name}: of {jobs} jobs {ended} ended well")
    return figures


def scale(rig: Rig, side: Side, beside: str) -> Figures:
    """W8: the same to the start of the last of so many jobs, with nothing, finished or pending jobs beside them."""
    jobs, ground = rig.jobs_of(side), side.ground
    word = f"with_{beside}"
    if not ground.bring(word):
        side.fresh()
        if beside == "finished":
            assert side.history is not None
            side.history(rig.finished)
        elif beside == "pending":
            side.fill(rig.pending)
        ground.settle()
        ground.keep(word)
    side.fill(jobs)
    ground.settle()
    return _timed(rig, side, jobs, processes=1, concurrency=rig.concurrency, to_the_end=False)


def _timed(
    rig: Rig, side: Side, jobs: int, *, processes: int, concurrency: int | None, to_the_end: bool
) -> Figures:
    ground = side.ground
    written, done = ground.log_bytes(), ground.transactions()
    others = rig.others()
    with Workers(side, rig.scratch, processes=processes, concurrency=concurrency) as workers:
        before = _wait_for_first(workers, 30.0)
        each = workers.cpu_each()
        seen, ended_at = _wait_for_all(rig, side, workers, before, jobs, to_the_end=to_the_end)
        spent, spent_beside = workers.cpu(), workers.cpu_beside(each)
        # A worker that is not done goes on between the last job that counts and the one that was seen last.
        count = min(seen.begun, jobs) if to_the_end else seen.begun
        figures = {
            "rate": count / ((ended_at - seen.first) / 1e9),
            "jobs": count,
            "first_job_s": (seen.first - workers.spawned_at) / 1e9,
            "stagger_s": seen.stagger / 1e9,
            "again": max(0, seen.begun - count),
            # What was begun before the first look is no part of the time either.
            "cpu_us": spent * 1e6 / max(1, seen.begun - before.begun),
            "cpu_us_all": (spent + spent_beside) * 1e6 / max(1, seen.begun - before.begun),
            "rss_mb": workers.resident(whole=True),
            "rss_runner_mb": workers.resident(whole=False),
            "others": others.cores(),
        }
        if written is not None:
            figures["wal_bytes"] = ((ground.log_bytes() or 0.0) - written) / max(1, seen.begun)
        stopping = time.monotonic()
    figures["stop_s"] = time.monotonic() - stopping
    if done is not None:
        figures["transactions"] = ((ground.transactions() or 0.0) - done) / max(1, seen.begun)
    return figures


def _wait_for_first(workers: Workers, seconds: float) -> Seen:
    until = time.monotonic() + seconds
    while not (seen := workers.seen()).begun:
        workers.check()
        if time.monotonic() > until:
            raise Failed(f"{workers.name}: no job began within {seconds:g} s; {workers.last_words()}")
        time.sleep(_POLL / 4)
    return seen


def _wait_for_all(
    rig: Rig, side: Side, workers: Workers, before: Seen, jobs: int, *, to_the_end: bool
) -> tuple[Seen, int]:
    """What was seen in the end, and when that was. A drain that takes too long is cut off at its last start."""
    moved_at, last = time.monotonic(), before
    while True:
        # A peer that was halted in the middle of writing its slot has it empty for a while: then the last look counts.
        seen, now = max(workers.seen(), last, key=lambda seen: seen.begun), time.monotonic()
        if seen.begun != last.begun:
            moved_at, last = now, seen
        if seen.begun >= jobs and not to_the_end:
            return seen, seen.last
        # Threads may overwrite each other's count, so one that all but stands still is trusted to the store.
        if seen.begun >= jobs or (seen.begun >= 0.99 * jobs and now - moved_at > 0.15):
            if side.ground.left(side.left) == 0:
                return seen, time.monotonic_ns()
        elif now - seen.first / 1e9 > rig.cap:
            return seen, seen.last
        if now - moved_at > rig.cap:
            raise Failed(
                f"{side.name}: {side.ground.left(side.left)} jobs are left and nothing moves; {workers.last_words()}"
            )
        workers.check()
        time.sleep(_POLL)


def latency(rig: Rig, side: Side) -> Figures:
    """W5: a job every 50 ms to an idle, warm worker; milliseconds from the enqueuer's return to the body's start."""
    side.fresh()
    side.fill(1)
    starts, sent = rig.scratch / "starts", rig.scratch / "sent"
    for file in (starts, sent):
        file.unlink(missing_ok=True)
    with Workers(side, rig.scratch, processes=rig.processes, concurrency=None, starts=starts) as workers:
        _wait_for_first(workers, 30.0)
        time.sleep(1.0)
        starts.write_bytes(b"")
        others = rig.others()
        side.call("w5", rig.seconds, sent)
        calls = [tuple(map(int, line.split())) for line in sent.read_text().splitlines()]
        begun = _starts(starts, {number for number, _, _ in calls}, workers)
        cores = others.cores()
    waits = sorted((begun[number] - returned) / 1e6 for number, _, returned in calls if number in begun)
    whole = sorted((begun[number] - called) / 1e6 for number, called, _ in calls if number in begun)
    if not waits:
        raise Failed(f"{side.name}: none of {len(calls)} jobs began")
    return {
        "jobs": len(waits),
        "missing": len(calls) - len(waits),
        **{f"p{part}": percentile(waits, part) for part in (50, 95, 99)},
        "max": waits[-1],
        "call_p50": percentile(whole, 50),
        "call_p99": percentile(whole, 99),
        "others": cores,
    }


def _starts(file: Path, wanted: set[int], workers: Workers) -> dict[int, int]:
    """When each job began, once all have or for two more seconds."""
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
    """The value below which so many per cent lie; the values come in order."""
    return ordered[min(len(ordered) - 1, len(ordered) * part // 100)]


def idling(rig: Rig, sides: Sequence[Side]) -> dict[str, Figures]:
    """W6: all workers at once, each with nothing to do; processor time and transactions over one window."""
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
        before = {side.name: (crews[side.name].cpu_of_all(), side.ground.transactions()) for side in sides}
        others, begun_at = rig.others(), time.monotonic()
        time.sleep(rig.window)
        found = {}
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
                figures["transactions_s"] = ((side.ground.transactions() or 0.0) - done) / seconds
                figures["connections"] = side.ground.connections() or 0.0
            found[side.name] = figures
        return found
    finally:
        for workers in entered:
            workers.stop()
