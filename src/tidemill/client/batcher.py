"""Group commit: concurrent enqueues of one process share a transaction, and each returns only when its row is durable.

There is no timer. Who comes first writes at once; whoever comes while that is under way is written together next.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar
from weakref import WeakKeyDictionary

from tidemill.domain.job import Enqueued, NewJob
from tidemill.errors import StoreUnavailable

Write = Callable[[Sequence[NewJob]], list[Enqueued]]
E = TypeVar("E", bound="_Entry")

LARGEST = 1_000
"""Jobs in one shared transaction; a caller's own batch may be larger."""


class _Entry:
    """One caller's jobs and what became of them."""

    __slots__ = ("answer", "error", "jobs")

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.answer: list[Enqueued] | None = None
        self.error: BaseException | None = None


class _Waiter(_Entry):
    """A thread that found another one writing: it is told when its jobs are written, or when it is to write itself."""

    __slots__ = ("leads", "ready")

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        super().__init__(jobs)
        self.ready = threading.Event()
        self.leads = False


def write_together(write: Write, entries: Sequence[_Entry]) -> None:
    """One transaction for all; if that fails, one for each, so that an error reaches only whose it is."""
    jobs = [job for entry in entries for job in entry.jobs]
    try:
        answers = write(jobs)
    except Exception as error:  # noqa: BLE001  (whoever asked is told)
        if len(entries) == 1:
            entries[0].error = error
            return
        for entry in entries:
            write_together(write, [entry])
        return
    at = 0
    for entry in entries:
        entry.answer = answers[at : at + len(entry.jobs)]
        at += len(entry.jobs)


def _take(waiting: list[E]) -> list[E]:
    """The next entries that make one transaction, the first in any case."""
    size, count = 0, 0
    for entry in waiting:
        if count and size + len(entry.jobs) > LARGEST:
            break
        size, count = size + len(entry.jobs), count + 1
    taken = waiting[:count]
    del waiting[:count]
    return taken


class Batcher:
    """For threads: the first of those who wait writes for all of them, then the next one leads."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._waiting: list[_Waiter] = []
        self._busy = False

    def submit(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write these jobs, together with whoever else is waiting."""
        waiter: _Waiter | None = None
        with self._lock:
            if self._busy:
                waiter = _Waiter(jobs)
                self._waiting.append(waiter)
            self._busy = True
        if waiter is None:  # nobody else writes, so nobody else waits
            try:
                return self._write(jobs)
            finally:
                self._pass_on()
        try:
            waiter.ready.wait()
        except BaseException:
            self._withdraw(waiter)
            raise
        if waiter.leads:
            self._lead()
        return _answer(waiter)

    def _lead(self) -> None:
        with self._lock:
            batch = _take(self._waiting)
        try:
            write_together(self._write, batch)
        except BaseException:
            for entry in batch:
                entry.error = entry.error or StoreUnavailable(
                    "the thread that wrote this job was interrupted; look it up"
                )
            raise
        finally:
            for entry in batch:
                entry.ready.set()
            self._pass_on()

    def _pass_on(self) -> None:
        """Let the next one lead, if anybody waits."""
        with self._lock:
            following = self._waiting[0] if self._waiting else None
            self._busy = following is not None
            if following is not None:
                following.leads = True
        if following is not None:
            following.ready.set()

    def _withdraw(self, waiter: _Waiter) -> None:
        """A thread was interrupted while it waited: it writes for nobody, and nobody writes for it."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        if waiter.leads:
            self._pass_on()


class AsyncBatcher:
    """For coroutines: one write at a time per loop, in a thread; what arrives meanwhile is the next batch."""

    def __init__(self, write: Write, executor: Callable[[], Executor]) -> None:
        self._write = write
        self._executor = executor
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState] = WeakKeyDictionary()

    async def submit(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write these jobs, together with whoever else is waiting on this loop."""
        loop = asyncio.get_running_loop()
        state = self._loops.get(loop)
        if state is None:
            state = self._loops[loop] = _LoopState()
        entry, done = _Entry(jobs), loop.create_future()
        state.waiting.append(entry)
        state.futures[entry] = done
        if state.flusher is None:
            state.flusher = loop.create_task(self._flush(loop, state))
        await done  # who gives up waiting changes nothing for the others, and his job is written all the same
        return _answer(entry)

    async def _flush(self, loop: asyncio.AbstractEventLoop, state: _LoopState) -> None:
        try:
            while state.waiting:
                batch = _take(state.waiting)
                try:
                    await loop.run_in_executor(self._executor(), write_together, self._write, batch)
                except (
                    RuntimeError
                ) as error:  # there are no threads any more: whoever waits must not wait for ever
                    for entry in batch:
                        entry.error = StoreUnavailable(
                            f"the job was not written: {error}; is the app closed?"
                        )
                for entry in batch:
                    done = state.futures.pop(entry)
                    if not done.done():
                        done.set_result(None)
        finally:
            state.flusher = None


class _LoopState:
    """What one event loop has under way."""

    def __init__(self) -> None:
        self.waiting: list[_Entry] = []
        self.futures: dict[_Entry, asyncio.Future[None]] = {}
        self.flusher: asyncio.Task[None] | None = None


def _answer(entry: _Entry) -> list[Enqueued]:
    if entry.error is not None:
        raise entry.error
    assert entry.answer is not None
    return entry.answer
