"""Writes down what running jobs say: log lines in bulk, progress at most once a second for each job.

All of it is fenced, so it must be written while the job is held: whoever finishes a job asks for ``settle`` first. A store
that does not answer for long costs lines, never a job.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from uuid import UUID

from tidemill.clock import Clock
from tidemill.domain.job import LogEntry, Progress, Report
from tidemill.engine.held import Held
from tidemill.errors import StoreBusy, StoreCorrupt, StoreError, StoreUnavailable
from tidemill.stores.base import Store

_log = logging.getLogger("tidemill.engine")

T = TypeVar("T")

EVERY = 1.0
"""Seconds between two progress writes of one job."""

GATHER = 0.2
"""Seconds log lines wait for company."""

MOST = 20_000
"""Lines kept while the store does not answer; then the oldest go."""


class Scribe:
    """Gathers and writes. ``on_lost`` is called with jobs that turn out not to be ours any more."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        on_lost: Callable[[Iterable[Held]], None],
        told: Callable[[Iterable[str]], None],
    ) -> None:
        self._store, self._clock, self._on_lost, self._told = store, clock, on_lost, told
        self._changed = threading.Condition()
        self._writing = threading.Lock()
        self._lines: list[tuple[Held, LogEntry]] = []
        self._progress: dict[UUID, tuple[Held, Progress]] = {}
        self._underway: frozenset[UUID] = frozenset()  # whose words are being written just now
        self._written_at: dict[UUID, float] = {}
        self._dropped = 0
        self._failing = False
        self._closed = False
        self._thread: threading.Thread | None = None

    def report(self, held: Held, progress: Progress) -> None:
        """Have this progress written, unless a newer one comes first."""
        with self._changed:
            self._progress[held.claim.id] = (held, progress)
            self._rouse()

    def log(self, held: Held, entry: LogEntry) -> None:
        """Have this line written."""
        with self._changed:
            self._lines.append((held, entry))
            self._trim()
            self._rouse()

    def _trim(self) -> None:
        over = len(self._lines) - MOST
        if over > 0:
            gone = max(over, MOST // 10)
            del self._lines[:gone]
            self._dropped += gone

    def _rouse(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._loop, name="tidemill-scribe", daemon=True)
            self._thread.start()
        self._changed.notify()

    def settle(self, ids: Iterable[UUID]) -> None:
        """Write what these jobs have said, now: they are about to be finished. A store that is away or busy is raised: their
        ends would not be written either, and when they are, the words must come first.
        """
        with self._changed:
            if not (self._lines or self._progress or self._underway or self._written_at):
                return
            ending = frozenset(ids)
            waiting = (
                not ending.isdisjoint(self._underway)  # they may yet come back
                or not ending.isdisjoint(self._progress)
                or any(held.claim.id in ending for held, _ in self._lines)
            )
        error = self._write(ending) if waiting else None
        if isinstance(error, StoreBusy | StoreUnavailable):
            raise error
        with self._changed:
            for id in ending:
                self._written_at.pop(id, None)

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._lines or self._progress)
                if self._closed:
                    return
            self._write()
            with self._changed:
                self._changed.wait_for(lambda: self._closed, GATHER)

    def _write(self, ending: frozenset[UUID] = frozenset()) -> StoreError | None:
        """Write all lines, and the progress that is due or of jobs that are ending; what the store had against it."""
        with self._writing:
            with self._changed:
                now = self._clock.monotonic()
                lines, self._lines = self._lines, []
                due = [
                    id
                    for id in self._progress
                    if id in ending or now - self._written_at.get(id, float("-inf")) >= EVERY
                ]
                reports = [self._progress.pop(id) for id in due]
                self._written_at.update((id, now) for id in due)
                said = [held for held, _ in (*lines, *reports)]
                self._underway = frozenset(held.claim.id for held in said)
            try:
                lost = self._put(lines, reports)
            except StoreError as error:
                self._put_back(lines, reports, error)
                return error
            finally:
                with self._changed:
                    self._underway = frozenset()
            self._written()
            if lost:
                self._lose(lost, said)
            return None

    def _written(self) -> None:
        with self._changed:
            dropped, self._dropped, self._failing = self._dropped, 0, False
        if dropped:
            _log.warning("%d log lines were dropped while the store did not answer", dropped)

    def _put(
        self, lines: Sequence[tuple[Held, LogEntry]], reports: Sequence[tuple[Held, Progress]]
    ) -> frozenset[UUID]:
        """What is lost. A line or a progress that the store refuses for what it holds is left out."""
        lost: frozenset[UUID] = frozenset()
        if lines:
            lost |= _sieved(self._store.log, [entry for _, entry in lines])
        if reports:
            told = [Report(held.claim.id, held.claim.token, progress) for held, progress in reports]
            lost |= _sieved(self._store.report, told)
            self._told(["progress"])
        return lost

    def _put_back(
        self,
        lines: Sequence[tuple[Held, LogEntry]],
        reports: Sequence[tuple[Held, Progress]],
        error: StoreError,
    ) -> None:
        if not self._failing:
            _log.warning("log lines and progress cannot be written yet: %s", error)
        self._failing = True
        with self._changed:
            self._lines[:0] = lines
            self._trim()
            for held, progress in reports:
                self._progress.setdefault(held.claim.id, (held, progress))

    def _lose(self, lost: frozenset[UUID], said: Sequence[Held]) -> None:
        """Where words of two executions of one job went together, nobody knows whose were refused: its end will show."""
        found = {id(held): held for held in said if held.claim.id in lost}.values()
        count = Counter(held.claim.id for held in found)
        self._on_lost([held for held in found if count[held.claim.id] == 1])

    def forget(self, jobs: Iterable[UUID]) -> None:
        """These jobs are gone; what they still had to say is not written."""
        gone = set(jobs)
        with self._changed:
            self._lines = [line for line in self._lines if line[0].claim.id not in gone]
            for each in gone:
                self._progress.pop(each, None)
                self._written_at.pop(each, None)

    def close(self) -> None:
        """Write what is left, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(10)
        if self._lines or self._progress:
            self._write(frozenset(self._progress))


def _sieved(write: Callable[[Sequence[T]], frozenset[UUID]], words: Sequence[T]) -> frozenset[UUID]:
    """Write them all; if the store refuses them for what they hold, in halves, so that only those are left out."""
    try:
        return write(words)
    except Exception as error:
        if isinstance(error, StoreError) and not isinstance(error, StoreCorrupt):
            raise
        if len(words) == 1:
            _log.exception("something a job said cannot be written and is left out")
            return frozenset()
        half = len(words) // 2
        return _sieved(write, words[:half]) | _sieved(write, words[half:])
