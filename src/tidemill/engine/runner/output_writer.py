"""Writer of jobs' output: log lines, progress and streams.

Log lines and items of streams are written in batches, progress at most once a second per job. All writes are fenced and must happen while
the job is held, so ``settle`` must be called before a job is finished. A thread that logs faster than the store writes
has to wait. If the store does not answer for long, lines are dropped, and the job's log contains their number. An
outage never fails a job. Items of streams are never dropped: the execution limits how many it writes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import LogEntry, Progress, ProgressReport
from tidemill.domain.streams import StreamEntry, topic_of
from tidemill.engine.completion import Unwritten
from tidemill.engine.exchange.held_job import HeldJob
from tidemill.engine.runner.log_buffer import AWAY, BATCH, FAST, Line, LogBuffer, batches, missing
from tidemill.errors import StoreBusy, StoreCorrupt, StoreError, StoreUnavailable
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

T = TypeVar("T")

Item = tuple[HeldJob, StreamEntry]

EVERY = 1.0
"""Seconds between two progress writes of one job."""

GATHER = 0.2
"""Seconds that log lines wait to be written in one batch."""

STREAM_GATHER = 0.05
"""Longest time, in seconds, that items of streams wait to be written."""

STREAM_BATCH = 2_000
"""Maximum items of one write."""

WAIT = 10.0
"""Longest time, in seconds, that a logging thread waits for space."""

UNDERWAY = 0.1
"""Seconds that the completion of a job in its user's transaction waits for a write of its output."""


class OutputWriter:
    """Buffers and writes jobs' output. ``on_lost`` receives jobs that this worker no longer holds."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        on_lost: Callable[[Iterable[HeldJob]], None],
        told: Callable[[Iterable[str]], None],
    ) -> None:
        self._store, self._clock, self._on_lost, self._told = store, clock, on_lost, told
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._room = threading.Condition(lock)  # notified when lines were written, or cannot be
        self._writing = threading.Lock()
        self._lines = LogBuffer()
        self._progress: dict[UUID, tuple[HeldJob, Progress]] = {}
        self._items: list[Item] = []
        self._underway: frozenset[UUID] = frozenset()  # jobs whose output is being written
        # The output being written.
        self._in_flight: tuple[list[Line], list[tuple[HeldJob, Progress]], list[Item]] = ([], [], [])
        self._written_at: dict[UUID, float] = {}
        self._failing = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def report(self, held: HeldJob, progress: Progress) -> None:
        """Queue this progress. A newer one replaces it until it is written."""
        with self._changed:
            self._progress[held.claim.id] = (held, progress)
            self._rouse()

    def log(self, held: HeldJob, entry: LogEntry) -> None:
        """Queue this line. The calling thread waits while the buffer is full."""
        with self._changed:
            if self._lines.pressed and _may_wait(held):
                self._room.wait_for(lambda: not self._lines.pressed or self._failing or self._closed, WAIT)
            self._lines.add(held, entry, self._why())
            self._rouse()

    def write_stream(self, held: HeldJob, entries: Sequence[StreamEntry]) -> None:
        """Queue items of a stream."""
        with self._changed:
            self._items += [(held, entry) for entry in entries]
            self._rouse()

    def _is_much(self) -> bool:
        """Whether there are enough lines to write without waiting for more."""
        return self._lines.pressed or len(self._lines) >= BATCH

    def _why(self) -> str:
        """Return why lines that do not fit are dropped."""
        return AWAY if self._failing else FAST

    def _rouse(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._loop, name="tidemill-output", daemon=True)
            self._thread.start()
        self._changed.notify()

    def settle(self, ids: Iterable[UUID]) -> None:
        """Write the output of these jobs now, because they are about to be finished.

        Raises if the store is unavailable or busy: it could not store the outcomes either, and the output must be
        written before them.
        """
        with self._changed:
            if self._lines.idle and not (self._progress or self._items or self._underway or self._written_at):
                return
            ending = frozenset(ids)
            waiting = (
                not ending.isdisjoint(self._underway)  # they may be put back
                or not ending.isdisjoint(self._progress)
                or self._lines.holds(ending)
                or any(held.claim.id in ending for held, _ in self._items)
            )
        error = self._write(ending) if waiting else None
        if isinstance(error, StoreBusy | StoreUnavailable):
            raise error
        with self._changed:
            self._lines.end(ending)
            for id in ending:
                self._written_at.pop(id, None)

    def flush(self, held: HeldJob) -> None:
        """Write the output of this job."""
        self.settle([held.claim.id])

    def unwritten(self, held: HeldJob) -> Unwritten:
        """Return output of this job that may be unwritten, for a transaction that completes the job.

        It also stays queued. A write that has begun ends first, so that its lines are not stored twice; a write that waits
        for the user's transaction cannot end, and finds the job completed afterwards.
        """
        with self._changed:
            self._changed.wait_for(lambda: held.claim.id not in self._underway, UNDERWAY)
            lines, reports, items = self._in_flight
            entries = [*(entry for owner, entry in lines if owner is held), *self._lines.of(held)]
            told = [progress for owner, progress in (*reports, *self._progress.values()) if owner is held]
            streamed = [entry for owner, entry in (*items, *self._items) if owner is held]
        claim = held.claim
        return Unwritten(
            entries,
            [ProgressReport(claim.id, claim.token, claim.worker, progress) for progress in told[-1:]],
            streamed,
        )

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._lines or self._progress or self._items)
                if self._closed:
                    return
            failed = self._write() is not None
            with self._changed:
                self._gather(failed)

    def _gather(self, failed: bool) -> None:
        """Wait for more output: for a short time if there are items of streams."""

        def enough() -> bool:
            return self._closed or (not failed and self._is_much())

        if not self._changed.wait_for(enough, STREAM_GATHER):
            self._changed.wait_for(
                lambda: enough() or (bool(self._items) and not failed), GATHER - STREAM_GATHER
            )

    def _write(self, ending: frozenset[UUID] = frozenset()) -> StoreError | None:
        """Write all lines, and progress that is due or belongs to ending jobs. Returns the store's error, if any."""
        with self._writing:
            with self._changed:
                now = self._clock.monotonic()
                lines = self._lines.take(ending)
                due = [
                    id
                    for id, (held, _) in self._progress.items()
                    if id in ending
                    or (not held.completes and now - self._written_at.get(id, float("-inf")) >= EVERY)
                ]
                reports = [self._progress.pop(id) for id in due]
                self._written_at.update((id, now) for id in due)
                items = self._take_items(ending)
                reporting = [held for held, _ in (*lines, *reports, *items)]
                self._underway = frozenset(held.claim.id for held in reporting)
                self._in_flight = lines, reports, items
                self._room.notify_all()
            written = streamed = 0
            lost: frozenset[UUID] = frozenset()
            try:
                for batch in batches(lines):
                    lost |= _sieved(self._store.log, [entry for _, entry in batch])
                    written += len(batch)
                for start in range(0, len(items), STREAM_BATCH):
                    lost |= self._put_items(items[start : start + STREAM_BATCH])
                    streamed += STREAM_BATCH
                lost |= self._put_progress(reports)
            except StoreError as error:
                self._put_back(lines[written:], reports, items[streamed:], error)
                return error
            finally:
                with self._changed:
                    self._underway, self._in_flight = frozenset(), ([], [], [])
                    self._changed.notify_all()
                self._warn_of_dropped(lines[:written])
            self._failing = False
            if lost:
                self._lose(lost, reporting)
            return None

    def _take_items(self, ending: frozenset[UUID]) -> list[Item]:
        """The items to write now. Those of a job that its user's transaction completes stay here, unless it is ending."""
        if not self._items:
            return []
        taken, self._items = self._items, []
        if any(held.completes for held, _ in taken):
            self._items = [item for item in taken if item[0].completes and item[0].claim.id not in ending]
            taken = [item for item in taken if not item[0].completes or item[0].claim.id in ending]
        return taken

    def _put_items(self, items: Sequence[Item]) -> frozenset[UUID]:
        """Write items of streams, wake their readers, and return the lost jobs."""
        lost = _sieved(self._store.write_streams, [entry for _, entry in items])
        self._told({topic_of(entry.job_id) for _, entry in items})
        return lost

    def _warn_of_dropped(self, written: Sequence[Line]) -> None:
        count, reasons = missing(written)
        if count:
            _log.warning("%d log lines of jobs were dropped: %s", count, " and ".join(sorted(reasons)))

    def _put_progress(self, reports: Sequence[tuple[HeldJob, Progress]]) -> frozenset[UUID]:
        """Write progress and return the lost jobs. Values that the store refuses are left out."""
        if not reports:
            return frozenset()
        told = [
            ProgressReport(held.claim.id, held.claim.token, held.claim.worker, progress)
            for held, progress in reports
        ]
        lost = _sieved(self._store.report, told)
        self._told(["progress"])
        return lost

    def _put_back(
        self,
        lines: Sequence[Line],
        reports: Sequence[tuple[HeldJob, Progress]],
        items: Sequence[Item],
        error: StoreError,
    ) -> None:
        if not self._failing:
            _log.warning("the output of jobs cannot be written yet: %s", error)
        with self._changed:
            self._failing = True
            self._lines.put_back(lines, AWAY)
            self._items[:0] = items
            for held, progress in reports:
                self._progress.setdefault(held.claim.id, (held, progress))
            self._room.notify_all()

    def _lose(self, lost: frozenset[UUID], reporting: Sequence[HeldJob]) -> None:
        """Report lost jobs.

        If output of two executions of one job was written together, it is unknown which was refused; writing the
        outcome will show.
        """
        found = {id(held): held for held in reporting if held.claim.id in lost}.values()
        count = Counter(held.claim.id for held in found)
        self._on_lost([held for held in found if count[held.claim.id] == 1])

    def forget(self, jobs: Iterable[UUID]) -> None:
        """Discard the output of these jobs, which this worker no longer holds."""
        gone = set(jobs)
        with self._changed:
            self._lines.forget(gone)
            self._items = [item for item in self._items if item[0].claim.id not in gone]
            for job_id in gone:
                self._progress.pop(job_id, None)
                self._written_at.pop(job_id, None)

    def close(self) -> None:
        """Write the remaining output and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._room.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(10)
        if self._lines or self._progress or self._items:
            self._write(frozenset(self._progress))


def _may_wait(held: HeldJob) -> bool:
    """Whether the calling thread can wait for the store.

    It must not run an event loop, and its user's transaction must not lock the job.
    """
    return held.kind == "thread" and not held.completes and asyncio._get_running_loop() is None


def _sieved(write: Callable[[Sequence[T]], frozenset[UUID]], words: Sequence[T]) -> frozenset[UUID]:
    """Write all items.

    If the store refuses their content, write them in halves, so that only the refused ones are left out.
    """
    try:
        return write(words)
    except Exception as error:
        if isinstance(error, StoreError) and not isinstance(error, StoreCorrupt):
            raise
        if len(words) == 1:
            _log.exception("cannot write the output of a job; dropping it")
            return frozenset()
        half = len(words) // 2
        return _sieved(write, words[:half]) | _sieved(write, words[half:])
