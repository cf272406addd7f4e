"""A drain through the store's own verbs, without a worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta

from tidemill.domain.cluster import Worker
from tidemill.domain.decide import COMPLETED
from tidemill.domain.job import Claim, Finish, NewJob
from tidemill.domain.lanes import ClaimRequest, Watermarks
from tidemill.ids import new_id
from tidemill.stores.base import Store

ARGS = '{"user_id": 123, "email": "a@example.com"}'
RESULT = '{"ok": true}'
TASK = "send_email"


@dataclass
class Drained:
    """The result of a drain: finished jobs, seconds, and the rate of each successive slice."""

    jobs: int = 0
    seconds: float = 0.0
    slices: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.jobs / self.seconds if self.seconds else 0.0


def new_jobs(count: int, queue: str = "default") -> list[NewJob]:
    return [NewJob(new_id(), TASK, ARGS, queue=queue) for _ in range(count)]


def fill(store: Store, count: int, batch: int = 5_000) -> None:
    for start in range(0, count, batch):
        store.enqueue(new_jobs(min(batch, count - start)))


def drain(store: Store, jobs: int, *, connections: int = 2, batch: int = 500, slice_of: int = 0) -> Drained:
    """Finish ``jobs`` jobs with as many threads as a worker has claim connections."""
    done = Drained()
    lock = threading.Lock()
    worker = store.register(Worker(new_id(), "drain"), lease=timedelta(days=1)).id
    begun = time.perf_counter()

    def note(count: int) -> None:
        with lock:
            done.jobs += count
            done.seconds = time.perf_counter() - begun
            if slice_of and done.jobs // slice_of > len(done.slices):
                done.slices.append(done.seconds)

    def work() -> None:
        marks, refreshed, pause = Watermarks(), float("-inf"), 1.0
        held: Sequence[Claim] = ()
        while done.jobs + len(held) < jobs or held:
            if time.perf_counter() - refreshed > pause:
                refreshed = time.perf_counter()
                marks.seen(store.lanes())
                pause = max(1.0, 50 * (time.perf_counter() - refreshed))
            ended = [Finish(claim, COMPLETED, RESULT, None, 0.0, 0.0) for claim in held]
            lanes = marks.lanes() if done.jobs + len(held) < jobs else []
            step = store.step(ended, ClaimRequest(worker, lanes, batch, (TASK,)))
            if step.lost:
                raise AssertionError(f"{len(step.lost)} jobs were lost although no other worker runs")
            note(len(ended))
            held = step.claims
            marks.claimed(held)

    with ThreadPoolExecutor(connections) as pool:
        for ended in [pool.submit(work) for _ in range(connections)]:
            ended.result()
    return done
