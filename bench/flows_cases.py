"""The cases of the benchmark of flows, each with the highest acceptable figure."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import drain
from bench.flows_app import answered, app, count, failed, link, many_steps, resumed, steps

from tidemill import Job, Node, each
from tidemill.domain.job import NewJob
from tidemill.domain.records import Setting
from tidemill.ids import new_id

PATIENCE = 300.0
EDGES, PAIRS = 2_000, 3
DRAINS, DRAINED = 5, 4_000
COUNTED = {"threads-of-1000", "waiting"}
"""The cases whose figures are no seconds."""


def started(nodes: int) -> Callable[[argparse.Namespace], list[float]]:
    def measure(options: argparse.Namespace) -> list[float]:
        number = min(nodes, options.large)
        flow = app.flow("start")
        flow.map(link.using(queue="nobody"), number=each(list(range(number))))
        began = time.perf_counter()
        flow.start()
        return [time.perf_counter() - began]

    return measure


def chained(options: argparse.Namespace) -> list[float]:
    del options
    flow = app.flow("chain")
    flow.chain(*([link.call()] + [link] * 999))
    return [ended(flow.start())]


def joined(nodes: int) -> Callable[[argparse.Namespace], list[float]]:
    def measure(options: argparse.Namespace) -> list[float]:
        number = min(nodes, options.large)
        flow = app.flow("out and in")
        mapped = flow.map(link, number=each(list(range(number))))
        flow.returns(flow.add(count, parts=mapped.results).result)
        run = flow.start()
        took = ended(run)
        assert run.result() == number
        return [took]

    return measure


def ended(run: Any) -> float:
    """Return the seconds from now to the end of the flow."""
    began = time.time()
    run.result(timeout=PATIENCE)
    return float(run.row.ended_at.timestamp() - began)


def stepped(options: argparse.Namespace) -> list[float]:
    del options
    return [steps.enqueue(count=1_000).result(timeout=PATIENCE)]


def counted(options: argparse.Namespace) -> list[float]:
    flow = app.flow("members")
    flow.map(link, number=each(list(range(options.large))))
    return [ended(flow.start()) / options.large]


def stepped_together(options: argparse.Namespace) -> list[float]:
    del options
    began = time.perf_counter()
    jobs = [many_steps.enqueue(count=100) for _ in range(100)]
    for job in jobs:
        job.result(timeout=PATIENCE)
    return [(time.perf_counter() - began) / 10_000]


def cancelled(options: argparse.Namespace) -> list[float]:
    flow = app.flow("cancel")
    first = flow.add(link.using(queue="nobody"))
    flow.map(link.using(queue="nobody"), number=each(list(range(options.large)))).after(first)
    run = flow.start()
    began = time.time()
    run.cancel("no longer wanted")
    return [end_of(run) - began]


def skipped(options: argparse.Namespace) -> list[float]:
    del options
    flow = app.flow("skip")
    last: Node[Any] = flow.add(failed)
    for _ in range(999):
        last = flow.add(link).after(last)
    run = flow.start()
    (first,) = [node for node in run.nodes() if node.name == "failed"]
    finished = end_of(run)
    began = first.job.refresh().row.finished_at
    assert began is not None
    return [finished - began.timestamp()]


def end_of(run: Any) -> float:
    """Wait until the flow has ended, however that was, and return the time of its end."""
    deadline = time.monotonic() + PATIENCE
    while (ended_at := run.refresh().row.ended_at) is None:
        if time.monotonic() > deadline:
            raise SystemExit(f"{run} does not end")
        time.sleep(0.02)
    return float(ended_at.timestamp())


def committed(options: argparse.Namespace) -> list[float]:
    del options
    took: list[float] = []
    for number in range(200):
        began = time.perf_counter()
        app.store.put_settings([Setting("bench.commit", number)])
        took.append(time.perf_counter() - began)
    app.store.drop_settings(["bench.commit"])
    return [statistics.median(took)]


def edged(options: argparse.Namespace) -> list[float]:
    number = min(EDGES, options.large)
    pairs = [(wide_flow(number, joined=True), wide_flow(number, joined=False)) for _ in range(PAIRS)]
    return [(joined - alone) / number for joined, alone in pairs]


def wide_flow(number: int, *, joined: bool) -> float:
    """Return the seconds of the start and the run of this many nodes, with or without one more that needs them all."""
    flow = app.flow("edges")
    nodes = [flow.add(link, number=place) for place in range(number)]
    last = flow.add(link, number=0)
    if joined:
        last.after(*nodes)
    began = time.perf_counter()
    run = flow.start()
    took = time.perf_counter() - began
    return took + ended(run)


def threads_held(options: argparse.Namespace) -> list[float]:
    """Suspend functions, two at a time, and return how many threads more the worker has while all of them wait.

    A pool keeps as many threads as jobs have run at once in its runner. Larger groups would be divided between the runners in another
    way each time, and their threads would be counted as well.
    """
    end_all(suspended(2))
    before = threads_of(options.worker)
    jobs = [job for _ in range(min(1_000, options.large) // 2) for job in suspended(2)]
    held = threads_of(options.worker) - before
    end_all(jobs)
    return [float(max(0, held))]


def suspended(number: int) -> list[Job[float]]:
    """Enqueue functions that wait for a signal, and return once they wait."""
    jobs = [answered.enqueue() for _ in range(number)]
    for job in jobs:
        wait_for_suspension(job)
    return jobs


def end_all(jobs: list[Job[float]]) -> None:
    for job in jobs:
        app.signal(job, "go")
    for job in jobs:
        job.result(timeout=PATIENCE)


def threads_of(worker: int) -> int:
    """The threads of the worker's processes."""
    children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
    return sum(len(list(Path(f"/proc/{process}/task").iterdir())) for process in (str(worker), *children))


def waiting(options: argparse.Namespace) -> list[float]:
    """Return the time of a drain beside suspended jobs, as a multiple of one without them."""
    before = statistics.median(drained() for _ in range(DRAINS))
    for start in range(0, options.waiting, 5_000):
        number = min(5_000, options.waiting - start)
        app.store.enqueue([NewJob(new_id(), drain.TASK, waiting="waits for a signal") for _ in range(number)])
    drained()
    return [statistics.median(drained() for _ in range(DRAINS)) / before]


def drained() -> float:
    drain.fill(app.store, DRAINED)
    return drain.drain(app.store, DRAINED).seconds


def replayed(options: argparse.Namespace) -> list[float]:
    del options
    return [resumed.enqueue(count=1_000).result(timeout=PATIENCE)]


def signalled(options: argparse.Namespace) -> list[float]:
    return [one_signal() for _ in range(options.signals)]


def one_signal() -> float:
    job = answered.enqueue()
    wait_for_suspension(job)
    time.sleep(0.1)
    sent = time.time()
    app.signal(job, "go")
    return float(job.result(timeout=PATIENCE)) - sent


def wait_for_suspension(job: Job[Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while job.refresh().row.state != "waiting":
        if time.monotonic() > deadline:
            raise SystemExit(f"{job} does not wait")
        time.sleep(0.02)


CASES: dict[str, tuple[Callable[[argparse.Namespace], list[float]], dict[str, float]]] = {
    "start-100": (started(100), {"postgres": 0.005, "sqlite": 0.005}),
    "start-10000": (started(10_000), {"postgres": 0.25, "sqlite": 0.25}),
    "chain-1000": (chained, {"postgres": 1.5, "sqlite": 1.5}),
    "out-and-in-1000": (joined(1_000), {"postgres": 0.2, "sqlite": 0.2}),
    "out-and-in-10000": (joined(10_000), {"postgres": 1.0, "sqlite": 1.2}),
    "member": (counted, {"postgres": 1 / 45_000, "sqlite": 1 / 25_000}),
    "step": (stepped, {"postgres": 0.0005, "sqlite": 0.0005}),
    "step-of-100": (stepped_together, {"postgres": 1 / 20_000, "sqlite": 1 / 15_000}),
    "resume-1000": (replayed, {"postgres": 0.005, "sqlite": 0.005}),
    "signal": (signalled, {"postgres": 0.005, "sqlite": 0.005}),
    "cancel-10000": (cancelled, {"postgres": 1.0, "sqlite": 1.0}),
    "skip-1000": (skipped, {"postgres": 2.0, "sqlite": 2.0}),
    "edge": (edged, {"postgres": 0.00002, "sqlite": 0.00002}),
    "threads-of-1000": (threads_held, {"postgres": 5, "sqlite": 5}),
    "waiting": (waiting, {"postgres": 1.02, "sqlite": 1.02}),
    "commit": (committed, {}),
}
"""Each case with the highest acceptable figure per store, if there is such a bar."""
