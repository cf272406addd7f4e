"""Readers of the streams of jobs.

A reader reads pages from the store. Between two pages it waits for a wake-up of the writer or the end of the job, and also polls.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from tidemill.archive.contents import read_streams
from tidemill.domain.job import JobRow
from tidemill.domain.states import ENDED
from tidemill.domain.streams import PAGE, START, StreamItem, StreamPosition, item_of, read_position

if TYPE_CHECKING:
    from tidemill.client.core import Client

POLL = 0.5
"""Seconds between two reads when no wake-up arrives."""


class StreamPage(NamedTuple):
    """Items of a stream, and whether more may follow without a change of the job."""

    items: list[StreamItem]
    is_full: bool


@dataclass(frozen=True)
class StreamSource:
    """One stream of one job."""

    client: Client
    store: str
    id: UUID
    tenant: str
    name: str

    def check(self) -> None:
        """Raise ``JobNotFound`` if there is no such job, live or archived."""
        self.client.get(self.id, tenant=self.tenant, store=self.store)

    def page(self, after: StreamPosition) -> StreamPage:
        """Read the items after a position."""
        stored = self.client.store(self.store).stream(self.id, self.name, tenant=self.tenant, after=after)
        if stored:
            return StreamPage([item_of(entry) for entry in stored], len(stored) == PAGE)
        copy = self.client.archived(self.id, tenant=self.tenant, store=self.store)
        if copy is None:
            return StreamPage([], is_full=False)
        entries = [
            entry for entry in read_streams(copy) if entry.name == self.name and entry.position > after
        ]
        return StreamPage([item_of(entry) for entry in entries], is_full=False)

    def follow(self, wake: Callable[[], None]) -> tuple[StreamWatch, Callable[[], None]]:
        """Call ``wake`` when items may have been written or the job has ended; also return how to stop that."""
        watch = StreamWatch(wake)
        return watch, self.client.waiting(self.store).follow(self.id, watch.heard, watch.written)


class StreamWatch:
    """The state of a followed job. The thread that watches the store calls it."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self.ended = False

    def heard(self, row: JobRow | None) -> None:
        """Note the end of the job. A job that no longer exists was deleted or archived, or keeps no record."""
        if row is None or row.state in ENDED:
            self.ended = True
            self._wake()

    def written(self) -> None:
        """Wake the reader."""
        self._wake()


def read_stream(source: StreamSource, after: str | None) -> Iterator[StreamItem]:
    """Yield the items of a stream in order until the job ends."""
    position = START if after is None else read_position(after)
    source.check()
    changed = threading.Event()
    watch, end = source.follow(changed.set)
    try:
        while True:
            changed.clear()
            # Read before the items: the items of a job are written before its end, so none can follow.
            ended = watch.ended
            page = source.page(position)
            for item in page.items:
                position = StreamPosition(item.execution, item.index)
                yield item
            if page.is_full:
                continue
            if ended:
                return
            changed.wait(POLL)
    finally:
        end()


async def aread_stream(source: StreamSource, after: str | None) -> AsyncGenerator[StreamItem]:
    """Yield the items of a stream like ``read_stream``, without blocking the event loop."""
    position = START if after is None else read_position(after)
    await source.client.in_thread(source.check)
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, so there is no reader left
            loop.call_soon_threadsafe(changed.set)

    watch, end = source.follow(wake)
    try:
        while True:
            changed.clear()
            ended = watch.ended
            page: StreamPage = await source.client.in_thread(source.page, position)
            for item in page.items:
                position = StreamPosition(item.execution, item.index)
                yield item
            if page.is_full:
                continue
            if ended:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL):
                    await changed.wait()
    finally:
        end()
