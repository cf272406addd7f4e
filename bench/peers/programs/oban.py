"""Oban for Python on PostgreSQL by psycopg, with uvloop and orjson like its CLI."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import orjson
import uvloop
from bench.peers import harness
from oban import Job, Oban, worker
from oban.schema import install
from psycopg.types.json import set_json_dumps, set_json_loads

set_json_dumps(orjson.dumps)
set_json_loads(orjson.loads)


@worker(queue="default")
class SendEmail:
    async def process(self, job: Job) -> None:
        harness.body(job.args["user_id"])


def packed(number: int) -> Job:
    return SendEmail.new(harness.payload(number))  # type: ignore[attr-defined]  # the decorator gives it


class Peer(harness.Program):
    def setup(self) -> None:
        asyncio.run(self._schema())

    async def _schema(self) -> None:
        pool = await Oban.create_pool(harness.URL)
        await install(pool)
        await pool.close()

    async def open(self) -> None:
        self._pool = await Oban.create_pool(harness.URL, min_size=1, max_size=10)
        self._oban = await Oban(pool=self._pool).start()

    async def close(self) -> None:
        await self._oban.stop()
        await self._pool.close()

    async def push(self, number: int) -> None:
        await self._oban.enqueue(packed(number))

    async def push_many(self, numbers: Sequence[int]) -> None:
        await self._oban.enqueue_many(map(packed, numbers))

    def worker(self) -> None:
        uvloop.run(self._work())

    async def _work(self) -> None:
        pool = await Oban.create_pool(harness.URL, min_size=1, max_size=10)
        async with Oban(pool=pool, queues={"default": harness.CONCURRENCY}):
            await asyncio.Event().wait()
