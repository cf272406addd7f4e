"""Writes of new jobs: one batch, and group commits of concurrent callers.

Concurrent enqueues of one process share a transaction. Each call returns only when its row is durable. There is no timer:
the first caller writes immediately, and the callers that arrive during that write form the next batch.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID
from weakref import WeakKeyDictionary

from tidemill.client.access import enqueued_entries
from tidemill.domain.calls import new_job_topics
from tidemill.domain.job import Enqueued, JobRow, NewJob
from tidemill.domain.states import JobState
from tidemill.errors import JobExists, StoreUnavailable
from tidemill.ids import made_at
from tidemill.stores import large_values
from tidemill.stores.base import Store
from tidemill.stores.occurrences import tied_if_followed

Write = Callable[[Sequence[NewJob]], list[Enqueued]]
E = TypeVar("E", bound="_Entry")

LARGEST = 1_000
"""Maximum number of jobs in a shared transaction; a single caller's batch may be larger."""


class _Entry:
    """One caller's jobs and the result of writing them."""

    __slots__ = ("answer", "error", "jobs")

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        self.jobs = jobs
        self.answer: list[Enqueued] | None = None
        self.error: BaseException | None = None


class _Waiter(_Entry):
    """A thread that waits during another thread's write, until its jobs are written or it must write itself."""

    __slots__ = ("leads", "ready")

    def __init__(self, jobs: Sequence[NewJob]) -> None:
        super().__init__(jobs)
        self.ready = threading.Event()
        self.leads = False


def write_together(write: Write, entries: Sequence[_Entry]) -> None:
    """Write all entries in one transaction.

    If it fails, write each entry separately, so that only the caller with the faulty jobs gets an error.
    """
    jobs = [job for entry in entries for job in entry.jobs]
    try:
        answers = write(jobs)
    except Exception as error:  # noqa: BLE001  (the caller re-raises it)
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
    """Remove and return the next entries that fit into one transaction, but at least one."""
    size, count = 0, 0
    for entry in waiting:
        if count and size + len(entry.jobs) > LARGEST:
            break
        size, count = size + len(entry.jobs), count + 1
    taken = waiting[:count]
    del waiting[:count]
    return taken


class Batcher:
    """Group commit for threads: the first waiting thread writes for all of them, then the next one leads."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._waiting: list[_Waiter] = []
        self._busy = False

    def submit(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write these jobs, together with those of other waiting threads."""
        waiter: _Waiter | None = None
        with self._lock:
            if self._busy:
                waiter = _Waiter(jobs)
                self._waiting.append(waiter)
            self._busy = True
        if waiter is None:  # no other thread is writing, so none is waiting
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
        """Let the next waiting thread lead, if there is one."""
        with self._lock:
            following = self._waiting[0] if self._waiting else None
            self._busy = following is not None
            if following is not None:
                following.leads = True
        if following is not None:
            following.ready.set()

    def _withdraw(self, waiter: _Waiter) -> None:
        """Remove a thread that was interrupted while waiting: its jobs are not written, and it does not lead."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        if waiter.leads:
            self._pass_on()


class AsyncBatcher:
    """Group commit for coroutines: one write at a time per event loop, in a thread; later calls form the next batch."""

    def __init__(self, write: Write, executor: Callable[[], Executor]) -> None:
        self._write = write
        self._executor = executor
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState] = WeakKeyDictionary()

    async def submit(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write these jobs, together with those of other coroutines waiting on this loop."""
        loop = asyncio.get_running_loop()
        state = self._loops.get(loop)
        if state is None:
            state = self._loops[loop] = _LoopState()
        entry, done = _Entry(jobs), loop.create_future()
        state.waiting.append(entry)
        state.futures[entry] = done
        if state.flusher is None:
            state.flusher = loop.create_task(self._flush(loop, state))
        await done  # a cancelled caller does not affect the others, and its job is still written
        return _answer(entry)

    async def _flush(self, loop: asyncio.AbstractEventLoop, state: _LoopState) -> None:
        try:
            while state.waiting:
                batch = _take(state.waiting)
                try:
                    await loop.run_in_executor(self._executor(), write_together, self._write, batch)
                except RuntimeError as error:  # the thread pool is shut down; fail the waiting callers
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
    """Pending entries of one event loop."""

    def __init__(self) -> None:
        self.waiting: list[_Entry] = []
        self.futures: dict[_Entry, asyncio.Future[None]] = {}
        self.flusher: asyncio.Task[None] | None = None


def _answer(entry: _Entry) -> list[Enqueued]:
    if entry.error is not None:
        raise entry.error
    assert entry.answer is not None
    return entry.answer


# One batch -----------------------------------------------------------------------------------------------------------


def put(store: Store, jobs: Sequence[NewJob], by: str | None = None) -> list[Enqueued]:
    """Store a batch, with an audit record if ``by`` is given, and wake the workers."""
    if by is None and not _are_large(jobs):
        return store.enqueue_and_wake(jobs)
    written = write(store, jobs, by)
    wake(store, jobs)
    return written


def write(store: Store, jobs: Sequence[NewJob], by: str | None) -> list[Enqueued]:
    """Store a batch, with an audit record if ``by`` is given."""
    if by is None:
        return _enqueue(store, jobs)
    with store.transaction():
        written = _enqueue(store, jobs)
        store.record(enqueued_entries(jobs, written, by))
    return written


def _enqueue(store: Store, jobs: Sequence[NewJob]) -> list[Enqueued]:
    return large_values.enqueue(store, jobs) if _are_large(jobs) else store.enqueue(jobs)


def _are_large(jobs: Sequence[NewJob]) -> bool:
    """Whether one of the jobs has large arguments. Most have small ones, and pay little for the others."""
    # A generator would cost each job more.
    for job in jobs:  # noqa: SIM110
        if type(job.args) is not str:
            return True
    return False


def insert_new(
    store: Store, jobs: Sequence[NewJob], taken: Callable[[NewJob, UUID], Exception], now: datetime | None
) -> list[Enqueued]:
    """Store jobs whose unique keys must be free; ``taken`` makes the error for a key that another job holds."""
    written = large_values.enqueue(store, tied_if_followed(store, jobs), now=now)
    for job, answer in zip(jobs, written, strict=True):
        if not answer.created:
            raise taken(job, answer.id)
    return written


def key_taken(job: NewJob, holder: UUID) -> JobExists:
    """Return the error for a unique key that another job holds."""
    return JobExists(f"job {holder} of task {job.task} holds the same unique key", id=holder, task=job.task)


def wake(store: Store, jobs: Sequence[NewJob], number: int | None = None) -> None:
    """Notify the workers that wait for such jobs: these, or ``number`` jobs like the only one given."""
    store.notify(new_job_topics(jobs, number))


def snapshot(job: NewJob, now: datetime) -> JobRow:
    """Return a new job as requested, without reading it back from the store."""
    created_at = min(made_at(job.id), now)
    run_at = job.run_at or created_at + (job.delay or timedelta(0))
    return JobRow(
        id=job.id,
        task=job.task,
        state=JobState.SCHEDULED if run_at > now else JobState.PENDING,
        tenant=job.tenant,
        queue=job.queue,
        priority=job.priority,
        args=job.args,
        attempt=0,
        max_attempts=job.max_attempts,
        crashes=0,
        token=0,
        run_at=run_at,
        created_at=created_at,
        expires_at=job.expires_at,
        timeout=job.timeout,
        unique_key=job.unique.key if job.unique is not None else None,
        limits=job.limits,
        details=job.details,
    )
