"""pgqueuer on PostgreSQL, by asyncpg and uvloop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import uvloop
from bench.peers import harness
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries


def packed(number: int) -> bytes:
    return json.dumps(harness.payload(number)).encode()


class Peer(harness.Program):
    def setup(self) -> None:
        asyncio.run(self._schema())

    async def _schema(self) -> None:
        await self.open()
        await self._queries.install()
        await self.close()

    async def open(self) -> None:
        self._connection = await asyncpg.connect(harness.URL)
        self._queries = Queries(AsyncpgDriver(self._connection))

    async def close(self) -> None:
        await self._connection.close()

    async def push(self, number: int) -> None:
        await self._queries.enqueue("send_email", packed(number))

    async def push_many(self, numbers: Sequence[int]) -> None:
        count = len(numbers)
        await self._queries.enqueue(["send_email"] * count, list(map(packed, numbers)), [0] * count)

    def worker(self) -> None:
        uvloop.run(self._work())

    async def _work(self) -> None:
        if harness.WORK.occupies_a_thread:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(harness.CONCURRENCY))
        pool = await asyncpg.create_pool(harness.URL, min_size=2, max_size=8)
        queuer = PgQueuer.from_asyncpg_pool(pool)

        @queuer.entrypoint("send_email")
        async def send_email(job: Job) -> None:
            number = json.loads(job.payload)["user_id"]
            if harness.WORK.occupies_a_thread:
                await asyncio.to_thread(harness.working_body, number)
            elif harness.WORK.kind:
                await harness.waiting_body(number)
            else:
                harness.body(number)

        await queuer.run(batch_size=harness.CONCURRENCY)
