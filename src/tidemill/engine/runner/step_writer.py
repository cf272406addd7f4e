"""Writer of the records of steps of one runner.

Records that arrive while a batch is being written form the next batch. A thread that finds no write under way writes its own record
and those of others itself, which saves a change of threads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from tidemill.domain.graph import StepRecord
from tidemill.errors import StoreCorrupt, StoreError
from tidemill.stores.base import Store

if TYPE_CHECKING:
    from tidemill.engine.runner.counters import Counters

_log = logging.getLogger("tidemill.engine")

BATCH = 500
"""Records of one write."""

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 1.0  # seconds before the next try while the store is unavailable


class _Entry:
    """Records of one job that are written together, and how that ended."""

    __slots__ = ("done", "error", "lost", "records", "wanted")

    def __init__(
        self, records: Sequence[StepRecord], wanted: Callable[[], bool], done: Callable[[], object]
    ) -> None:
        self.records, self.wanted, self.done = records, wanted, done
        self.lost = False
        self.error: Exception | None = None


class StepWriter:
    """Writes records in batches. If the store is unavailable it tries again for as long as a job wants its record."""

    def __init__(self, store: Store, counters: Counters) -> None:
        self._store, self._counters = store, counters
        self._changed = threading.Condition()
        self._waiting: deque[_Entry] = deque()
        self._writing = False
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def write(self, records: Sequence[StepRecord], wanted: Callable[[], bool]) -> bool:
        """Write records of one job, and return whether this worker still holds the job."""
        done = threading.Event()
        entry = _Entry(records, wanted, done.set)
        with self._changed:
            self._waiting.append(entry)
            leads, self._writing = not self._writing, True
        if leads:
            self._write(self._take())
            self._hand_over()
        done.wait()
        return _answer(entry)

    async def awrite(self, records: Sequence[StepRecord], wanted: Callable[[], bool]) -> bool:
        """Write records like ``write``, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        entry = _Entry(records, wanted, lambda: loop.call_soon_threadsafe(_wake, done))
        with self._changed:
            self._waiting.append(entry)
            if not self._writing:
                self._writing = True
                self._rouse()
        await done
        return _answer(entry)

    def _rouse(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="tidemill-steps", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _hand_over(self) -> None:
        """Leave the records that arrived during a write to the thread."""
        with self._changed:
            if self._waiting:
                self._rouse()
            else:
                self._writing = False

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._thread is threading.current_thread() and self._closed.is_set():
                        return
                    # Another thread may be writing its own record: it hands over what arrives in that time.
                    self._changed.wait()
            self._write(self._take())
            with self._changed:
                if not self._waiting:
                    self._writing = False

    def _take(self) -> list[_Entry]:
        with self._changed:
            batch: list[_Entry] = []
            count = 0
            while self._waiting and (not batch or count + len(self._waiting[0].records) <= BATCH):
                batch.append(self._waiting.popleft())
                count += len(batch[-1].records)
            return batch

    def _write(self, entries: list[_Entry]) -> None:
        try:
            self._attempt(entries)
        except Exception as error:  # noqa: BLE001  (each job gets the error of its own record)
            if len(entries) > 1:
                for entry in entries:
                    self._write([entry])
                return
            for entry in entries:
                entry.error = error
                entry.done()
            return
        for entry in entries:
            entry.done()

    def _attempt(self, entries: list[_Entry]) -> None:
        wait = _FIRST_WAIT
        lost: frozenset[UUID] = frozenset()
        while True:
            try:
                lost = self._store.record_steps([record for entry in entries for record in entry.records])
                break
            except StoreError as error:
                # A second write of the same record has no effect, so a lost answer does no harm.
                if isinstance(error, StoreCorrupt) or self._closed.is_set() or not _any_wanted(entries):
                    raise
                if wait == _FIRST_WAIT:
                    _log.warning("records of steps cannot be written yet: %s", error)
                self._closed.wait(wait)
                wait = min(wait * 2, _LONGEST_WAIT)
        # Only one thread writes at a time.
        self._counters.steps += sum(len(entry.records) for entry in entries)
        if lost:
            self._mark_lost(entries, lost)

    def _mark_lost(self, entries: list[_Entry], lost: frozenset[UUID]) -> None:
        for entry in entries:
            entry.lost = entry.records[0].job_id in lost

    def close(self) -> None:
        """End the thread once it has written everything."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)


def _any_wanted(entries: list[_Entry]) -> bool:
    return any(entry.wanted() for entry in entries)


def _answer(entry: _Entry) -> bool:
    if entry.error is not None:
        raise entry.error
    return not entry.lost


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
