"""SAQ on Redis, or in the mode "postgres" on PostgreSQL.

Ended jobs are kept for ten minutes (default).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from bench.peers import harness
from saq import Queue, Worker


async def send_email(ctx: dict[str, Any], *, user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001
    return harness.body(user_id)


def make_queue() -> Queue:
    if harness.MODE != "postgres":
        return Queue.from_url(harness.URL)
    from psycopg_pool import AsyncConnectionPool
    from saq.queue.postgres import PostgresQueue

    pool = AsyncConnectionPool(harness.URL, open=False, min_size=4, max_size=20, kwargs={"autocommit": True})
    return PostgresQueue(pool=pool, manage_pool_lifecycle=True)


class Peer(harness.Program):
    def setup(self) -> None:
        asyncio.run(self._schema())

    async def _schema(self) -> None:
        await self.open()
        await self.close()

    async def open(self) -> None:
        self._queue = make_queue()
        await self._queue.connect()

    async def close(self) -> None:
        await self._queue.disconnect()

    async def push(self, number: int) -> None:
        await self._queue.enqueue("send_email", **harness.payload(number))

    def worker(self) -> None:
        logging.getLogger("saq").setLevel(logging.WARNING)
        asyncio.run(self._work())

    async def _work(self) -> None:
        await self.open()
        functions = [("send_email", send_email)]
        await Worker(self._queue, functions=functions, concurrency=harness.CONCURRENCY).start()
