"""dramatiq on Redis: one process with threads, without results (default)."""

from __future__ import annotations

import os
import sys

import dramatiq
from bench.peers import harness
from dramatiq.brokers.redis import RedisBroker

BODY = harness.working_body if harness.WORK.kind else harness.body
dramatiq.set_broker(RedisBroker(url=harness.URL))


@dramatiq.actor(actor_name="send_email")
def send_email(user_id: int, email: str) -> None:  # noqa: ARG001  (a realistic payload)
    BODY(user_id)


class Peer(harness.Program):
    async def push(self, number: int) -> None:
        send_email.send(**harness.payload(number))

    def worker(self) -> None:
        words = ["--processes", "1", "--threads", str(harness.CONCURRENCY)]
        os.execv(sys.executable, [sys.executable, "-m", "dramatiq", __name__, *words])
