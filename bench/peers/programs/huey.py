"""huey on Redis, or in the mode "sqlite" on SQLite.

It uses threads and stores no results, which is its fastest mode.
"""

from __future__ import annotations

import logging

from bench.peers import harness
from huey import RedisHuey, SqliteHuey

BODY = harness.working_body if harness.WORK.kind else harness.body
if harness.MODE == "sqlite":
    huey = SqliteHuey("bench", filename=harness.URL, results=False)
else:
    huey = RedisHuey("bench", url=harness.URL, results=False)


@huey.task(name="send_email")
def send_email(user_id: int, email: str) -> dict[str, bool]:  # noqa: ARG001  (a realistic payload)
    return BODY(user_id)


class Peer(harness.Program):
    async def push(self, number: int) -> None:
        send_email(**harness.payload(number))

    def worker(self) -> None:
        logging.getLogger("huey").setLevel(logging.WARNING)
        huey.create_consumer(workers=harness.CONCURRENCY, worker_type="thread").run()
