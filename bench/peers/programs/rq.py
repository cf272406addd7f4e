"""RQ on Redis, with the worker that runs jobs in its own process.

The default worker forks for every job and is slower.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers import harness
from redis import Redis
from rq import Queue, SimpleWorker

BODY = harness.working_body if harness.WORK.kind else harness.body


def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
    return BODY(user_id)


class Peer(harness.Program):
    def __init__(self) -> None:
        self._connection = Redis.from_url(harness.URL)
        self._queue = Queue(connection=self._connection)

    async def push(self, number: int) -> None:
        self._queue.enqueue(send_email, kwargs=harness.payload(number))

    async def push_many(self, numbers: Sequence[int]) -> None:
        jobs = [Queue.prepare_data(send_email, kwargs=harness.payload(number)) for number in numbers]
        self._queue.enqueue_many(jobs)

    def worker(self) -> None:
        SimpleWorker([self._queue], connection=self._connection).work(logging_level="WARNING")
