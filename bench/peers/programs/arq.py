"""arq on Redis with defaults: polls every 0.5 s, keeps results for an hour."""

from __future__ import annotations

import logging
from typing import Any

from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import run_worker
from bench.peers import harness

STORE = RedisSettings.from_dsn(harness.URL)


async def send_email(ctx: dict[str, Any], user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001
    return harness.body(user_id)


class Settings:
    functions = (func(send_email, name="send_email"),)
    redis_settings = STORE
    max_jobs = harness.CONCURRENCY


class Peer(harness.Program):
    async def open(self) -> None:
        self._pool = await create_pool(STORE)

    async def close(self) -> None:
        await self._pool.aclose()

    async def push(self, number: int) -> None:
        await self._pool.enqueue_job("send_email", **harness.payload(number))

    def worker(self) -> None:
        logging.getLogger("arq").setLevel(logging.WARNING)
        run_worker(Settings)
