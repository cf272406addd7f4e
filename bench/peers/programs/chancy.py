"""chancy on PostgreSQL, with its executor for coroutines and eager polling."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from bench.peers import harness
from chancy import Chancy, Job, Queue, Worker, job


@job(queue="default")
async def send_email(*, user_id: int, email: str) -> None:  # noqa: ARG001  (a realistic payload)
    harness.body(user_id)


def queue() -> Queue:
    return Queue(
        "default", concurrency=harness.CONCURRENCY, executor=Chancy.Executor.Async, eager_polling=True
    )


def packed(number: int) -> Job:
    return send_email.job.with_kwargs(**harness.payload(number))


class Peer(harness.Program):
    def setup(self) -> None:
        asyncio.run(self._schema())

    async def _schema(self) -> None:
        async with Chancy(harness.URL) as chancy:
            await chancy.migrate()
            await chancy.declare(queue(), upsert=True)

    async def open(self) -> None:
        self._chancy = await Chancy(harness.URL).__aenter__()

    async def close(self) -> None:
        await self._chancy.__aexit__(None, None, None)

    async def push(self, number: int) -> None:
        await self._chancy.push(packed(number))

    async def push_many(self, numbers: Sequence[int]) -> None:
        async for _ in self._chancy.push_many(list(map(packed, numbers)), batch_size=harness.BULK):
            pass

    def worker(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        log = logging.getLogger("chancy")
        # By default, it logs a line for every job.
        log.setLevel(logging.WARNING)
        async with Chancy(harness.URL, log=log) as chancy:
            await chancy.declare(queue(), upsert=True)
            async with Worker(chancy) as worker:
                await worker.wait_for_shutdown()
