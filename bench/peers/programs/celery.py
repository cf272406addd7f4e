"""Celery on Redis: one prefork process with early acknowledgement (default).

The mode "results" also stores results in Redis. Jobs that block run in the pool of threads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from bench.peers import harness
from celery import Celery, group

BODY = harness.working_body if harness.WORK.kind else harness.body
STORES = harness.MODE == "results"
app = Celery("bench", broker=harness.URL, backend=harness.URL if STORES else None)
app.conf.update(task_ignore_result=not STORES, broker_connection_retry_on_startup=True)


@app.task(name="send_email")
def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
    return BODY(user_id)


class Peer(harness.Program):
    async def push(self, number: int) -> None:
        send_email.delay(**harness.payload(number))

    async def push_many(self, numbers: Sequence[int]) -> None:
        group(send_email.s(**harness.payload(number)) for number in numbers).apply_async()

    def worker(self) -> None:
        pool = "threads" if harness.WORK.kind == "block" else "prefork"
        words = ["--loglevel", "ERROR", "--pool", pool, "--concurrency", str(harness.CONCURRENCY)]
        app.worker_main(["worker", *words, "--hostname", f"bench-{os.getpid()}@localhost"])
