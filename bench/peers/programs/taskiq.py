"""taskiq on a Redis stream; the mode "results" also stores results in Redis."""

from __future__ import annotations

import os
import sys

from bench.peers import harness
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

broker = RedisStreamBroker(harness.URL)
if harness.MODE == "results":
    broker = broker.with_result_backend(RedisAsyncResultBackend(harness.URL))


if harness.WORK.occupies_a_thread:

    @broker.task(task_name="send_email")
    def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
        return harness.working_body(user_id)

else:

    @broker.task(task_name="send_email")
    async def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
        return await harness.waiting_body(user_id) if harness.WORK.kind else harness.body(user_id)


class Peer(harness.Program):
    async def open(self) -> None:
        await broker.startup()

    async def close(self) -> None:
        await broker.shutdown()

    async def push(self, number: int) -> None:
        await send_email.kiq(**harness.payload(number))

    def worker(self) -> None:
        words = ["--workers", "1", "--max-async-tasks", str(harness.CONCURRENCY), "--log-level", "WARNING"]
        if harness.WORK.occupies_a_thread:
            words += ["--max-threadpool-threads", str(harness.CONCURRENCY)]
        os.execv(sys.executable, [sys.executable, "-m", "taskiq", "worker", f"{__name__}:broker", *words])
