"""procrastinate on PostgreSQL, by psycopg."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import procrastinate
from bench.peers import harness

# The server accepts 100.
MOST_CONNECTIONS = 50

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(
        conninfo=harness.URL, min_size=1, max_size=min(harness.CONCURRENCY, MOST_CONNECTIONS) + 4
    )
)


if harness.WORK.occupies_a_thread:

    @app.task(name="send_email")
    def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
        return harness.working_body(user_id)

else:

    @app.task(name="send_email")
    async def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
        return await harness.waiting_body(user_id) if harness.WORK.kind else harness.body(user_id)


class Peer(harness.Program):
    def setup(self) -> None:
        asyncio.run(self._schema())

    async def _schema(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await app.open_async()

    async def close(self) -> None:
        await app.close_async()

    async def push(self, number: int) -> None:
        await send_email.defer_async(**harness.payload(number))

    async def push_many(self, numbers: Sequence[int]) -> None:
        await send_email.batch_defer_async(*map(harness.payload, numbers))

    def worker(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        if harness.WORK.occupies_a_thread:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(harness.CONCURRENCY))
        async with app.open_async():
            await app.run_worker_async(concurrency=harness.CONCURRENCY)
