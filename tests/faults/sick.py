"""Sick runners, which are alive without progress, and their replacement.

``python -m tests.faults.sick --store postgres`` uses the default settings and four handlers: one holds the GIL past its timeout
of 8 s, one closes every descriptor, one blocks the event loop, and one lowers RLIMIT_NOFILE to 5. Twenty coroutines run next to
each. The run measures how soon the worker is not ready, how soon the runner is replaced, and which jobs are charged.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.engine.worker_kit import WorkerProcess, World, a_world, alive
from tests.faults.checks import Verdict
from tests.faults.command import main
from tests.faults.kit import Harness, clock, until

from tidemill.domain.states import JobState

NEIGHBOURS = 20
NOT_READY = 10.0
"""Seconds within which the readiness probe must fail."""

Start = Callable[[World], Any]
KINDS: dict[str, tuple[Start, float]] = {
    "gil": (
        lambda world: world.tasks.hold_the_interpreter.using(timeout=timedelta(seconds=8)).enqueue(
            file=world.file("gil"), seconds=100
        ),
        8 + 5 + 4,
    ),
    "closed": (lambda world: world.tasks.close_descriptors.enqueue(file=world.file("closed")), 15),
    "wedged": (
        lambda world: world.tasks.block_the_loop.enqueue(file=world.file("wedged"), seconds=45),
        30 + 8,
    ),
    "nofile": (lambda world: world.tasks.exhaust_descriptors.enqueue(file=world.file("nofile")), 15),
}
"""Each kind: a job that makes its runner sick, and the seconds within which the runner must be replaced."""


def run(harness: Harness, cycles: int, seed: int) -> Verdict:
    """Run every kind in turn, each with a separate worker."""
    verdict = Verdict()
    for cycle in range(cycles):
        for kind, (start, bound) in KINDS.items():
            folder = harness.folder / f"{kind}-{cycle}"
            folder.mkdir()
            with a_world(harness.url, folder) as world:
                verdict.facts[f"{kind}-{cycle}"] = one(world, kind, start, bound, verdict)
    return verdict


def one(world: World, kind: str, start: Start, bound: float, verdict: Verdict) -> dict[str, object]:
    """Make one runner sick; return the figures."""
    worker = world.worker("--processes", "1", "--health-port", "0")
    until(lambda: worker.readies() >= 1, "a runner is ready", 90)
    until(lambda: ready(worker), "the worker is ready", 30)
    neighbours = [world.tasks.doze.enqueue(file=world.file("doze"), seconds=3.0) for _ in range(NEIGHBOURS)]
    until(lambda: len(world.notes("doze")) == NEIGHBOURS, "the neighbours run", 60)
    job = start(world)
    (sick, *_) = until(lambda: world.notes(kind), "the runner is sick", 60)
    began = clock.monotonic()
    # When the probe reported that the worker is not ready.
    seen: list[float] = []

    def replaced() -> bool:
        if not ready(worker):
            seen.append(clock.monotonic() - began)
        return not alive(sick)

    until(replaced, "the sick runner is gone", 200)
    gone = clock.monotonic() - began
    # The supervisor notices the exit a moment after this process.
    until(lambda: replaced() and (seen or worker.readies() > 1), "the worker has noticed", 60)
    unready = seen[0] if seen else None
    until(lambda: ready(worker), "the worker is ready again", 60)
    again = clock.monotonic() - began
    for neighbour in neighbours:
        neighbour.result(timeout=90)
    over = clock.monotonic() - began
    rows = [world.row(neighbour) for neighbour in neighbours]
    charged = sum(row.attempt > 1 for row in rows)
    until(lambda: world.row(job).state not in (JobState.RUNNING, JobState.CLAIMED), "the job has ended", 90)
    law = f"{kind}: in time"
    verdict.expect(unready is not None and unready <= NOT_READY, f"{law}, the worker is not ready", unready)
    verdict.expect(gone <= bound, f"{law}, the runner is replaced", gone)
    verdict.expect(not charged, f"{kind}: no neighbour is charged an attempt", charged)
    if kind == "gil":
        verdict.expect(
            world.row(job).state is JobState.TIMED_OUT, "gil: the job timed out", world.row(job).state
        )
    worker.end()
    return {
        "not_ready_after": None if unready is None else round(unready, 1),
        "runner_gone_after": round(gone, 1),
        "ready_again_after": round(again, 1),
        "neighbours_done_after": round(over, 1),
        "neighbours_charged": charged,
        "neighbours_suspected": sum(row.crashes > 0 for row in rows),
        "job": world.row(job).state.value,
    }


def ready(worker: WorkerProcess) -> bool:
    """Return whether the readiness probe succeeds."""
    return bool(worker.ask("/readyz")[0] == 200)


if __name__ == "__main__":
    main("sick", run, cycles=1)
