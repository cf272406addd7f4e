"""Batched lookup of single jobs: concurrent requests share one store query.

There is no timer. The first request starts a query at once, and requests that arrive during it form the next batch.
"""

from __future__ import annotations

import asyncio
from uuid import UUID
from weakref import WeakKeyDictionary

from tidemill.client.inspection import Inspection
from tidemill.domain.filters import ALL_TENANTS
from tidemill.domain.job import JobRow
from tidemill.web.threads import Threads

LARGEST = 200
"""Maximum number of jobs in one query."""

Wanted = dict[UUID, list["asyncio.Future[JobRow | None]"]]


class JobLoader:
    """Runs one query at a time per event loop."""

    def __init__(self, inspection: Inspection, threads: Threads) -> None:
        self._inspection, self._threads = inspection, threads
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, Wanted] = WeakKeyDictionary()
        self._flushing: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()

    async def get(self, id: UUID, *, tenant: str) -> JobRow | None:
        """Return the job with this id if it belongs to the tenant."""
        loop = asyncio.get_running_loop()
        wanted = self._waiting.setdefault(loop, {})
        future: asyncio.Future[JobRow | None] = loop.create_future()
        wanted.setdefault(id, []).append(future)
        if loop not in self._flushing:
            self._flushing[loop] = loop.create_task(self._flush(loop, wanted))
        job = await future
        # The query covers all tenants, because a batch may mix them. So each caller's tenant is checked here.
        return job if job is not None and tenant in (ALL_TENANTS, job.tenant) else None

    async def _flush(self, loop: asyncio.AbstractEventLoop, wanted: Wanted) -> None:
        try:
            while wanted:
                batch = {id: wanted.pop(id) for id in list(wanted)[:LARGEST]}
                try:
                    rows = await self._threads.run(
                        self._inspection.live_jobs, list(batch), tenant=ALL_TENANTS
                    )
                except Exception as error:  # noqa: BLE001  (the callers receive the error)
                    for futures in batch.values():
                        for future in futures:
                            if not future.done():
                                future.set_exception(error)
                    continue
                jobs = {job.id: job for job in rows}
                for id, futures in batch.items():
                    for future in futures:
                        if not future.done():
                            future.set_result(jobs.get(id))
        finally:
            del self._flushing[loop]
